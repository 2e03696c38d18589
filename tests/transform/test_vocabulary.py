"""Vocabulary passes on any schedule, proven."""

from dataclasses import replace

import pytest

from every_schedule.cases import completed
from loops import each
from penstock.check import check
from penstock.core.table import Table
from penstock.errors import ShapeError
from penstock.lower import lower
from penstock.schedules import build, registry
from penstock.transform import recompute_all, shard, split_backward, spread_vocabulary


def test_passes_stand_around_the_ends_and_the_turn_of_each_unit() -> None:
    spread = spread_vocabulary(build("1f1b", devices=2, microbatches=2))
    lanes = [" ".join(str(op)[1:] for op in spread.lane(device)) for device in range(2)]
    assert lanes == [
        "E0 F0 E1 F1 S0 T0 B0 D0 S1 T1 B1 D1",
        "E0 E1 F0 S0 T0 B0 F1 D0 S1 T1 B1 D1",
    ]
    assert (spread.shape.embed, spread.shape.loss) == ("E", "T")
    assert spread.name == "1f1b+vocabulary"


@pytest.mark.long
@each("loss", ["S", "T"])
@each("name", [*registry()])
def test_every_schedule_that_has_none_can_have_passes(name: str, loss: str) -> None:
    spec = registry()[name]
    schedule = spec.build(completed(spec, spec.cases[0]))
    if schedule.shape.shards:
        pytest.skip("has passes")
    spread = spread_vocabulary(schedule, loss=loss)
    assert check(spread).proven
    lower(spread)


def test_passes_go_with_other_transforms() -> None:
    spread = spread_vocabulary(split_backward(build("1f1b", devices=3, microbatches=4)))
    for transformed in (recompute_all(spread), shard(spread, weights=1, gradients=1)):
        assert check(transformed).proven


def test_a_schedule_that_has_passes_or_gathers_is_refused() -> None:
    base = build("1f1b", devices=2, microbatches=2)
    with pytest.raises(ShapeError, match="ops of kind D, E, S, T, so its vocabulary cannot"):
        spread_vocabulary(spread_vocabulary(base))
    with pytest.raises(ShapeError, match="ops of kind G, Z"):
        spread_vocabulary(shard(base, weights=1, gradients=1))


def test_the_order_of_lanes_that_are_stuck_is_kept() -> None:
    order = build("1f1b", devices=2, microbatches=2)
    lanes = [(0, "compute", order.lane(0)[::-1]), (1, "compute", order.lane(1))]
    stuck = replace(order, table=Table.of(lanes), derived={})
    spread = spread_vocabulary(stuck)
    for device, _, ops in lanes:
        assert [op for op in spread.lane(device) if op.kind in "FB"] == ops

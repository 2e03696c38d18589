"""What copies of a stage send: the papers' volumes, and what real ranks send."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from penstock.arch.cell_shape import CellPlace, CellShape
from penstock.arch.config import ModelConfig
from penstock.arch.presets import MODELS
from penstock.cost.copies import Copies, Shard
from penstock.cost.rank_share import RankShare
from penstock.cost.volumes import collected_per_parameter
from penstock.schedules import build
from penstock.transform import shard

LLAMA = MODELS["llama3-8b"]
ONE_STAGE = Copies(RankShare(LLAMA, CellShape()), (32,))


def all_of(copies: Sequence[Copies], kind: str, stage: int = 0) -> Fraction:
    """What all copies together send in an op."""
    return sum((each.sent(kind, stage).copies for each in copies), Fraction(0))


def every(count: int, named: Shard, one: Copies = ONE_STAGE) -> list[Copies]:
    return [replace(one, count=count, index=index, shard=named) for index in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_owners_move_each_element_once_to_each_rank_that_lacks_it(count: int) -> None:
    """Gradients in 32 bits to their owner, values of 16 bits to all: 6 bytes, not 8."""
    gradients, values = 4 * LLAMA.parameters, 2 * LLAMA.parameters
    for named, gathering in (("optimizer", "U"), ("full", "G")):
        copies = every(count, named)
        assert all_of(copies, "Z") == (count - 1) * gradients
        assert all_of(copies, gathering) == (count - 1) * values
    assert all_of(every(count, "none"), "Z") == 2 * (count - 1) * gradients
    assert not any(all_of(every(count, "none"), kind) for kind in "GU")


def test_a_step_in_breadth_first_order_gathers_weights_twice_and_reduces_them_once() -> None:
    """arXiv:2211.05953, section 4: 3 elements per parameter, less what stays over the turn."""
    sharded = shard(
        build("breadth-first", devices=4, microbatches=16, chunks=4), weights=1, gradients=4
    )
    model = ModelConfig(16, 64, 128, 4, 2, 16, 64, element_bytes=4)
    one = Copies(RankShare(model, CellShape()), (1,) * 16)
    for device, stream, ops in sharded.table.lanes():
        if stream == "collective" and device in (1, 2):  # without embedding and head
            moved = [all_of(every(4, "full", one), op.kind, op.stage) for op in ops]
            held = sum(one.layout(stage).stored for stage in range(device, 16, 4))
            assert sum(moved) == 4 * 3 * held * collected_per_parameter(sharded)[device]


def test_an_embedding_that_the_head_shares_is_dealt_apart() -> None:
    tied = replace(LLAMA, tied=True)
    one = Copies(RankShare(tied, CellShape()), (16, 16))
    for stage in (0, 1):
        found = every(3, "optimizer", one)
        sums = [each.sent("Z", stage).copies for each in found]
        assert sum(sums) == 2 * 4 * found[0].layout(stage).stored


def test_ranks_that_hold_the_same_norms_add_up_their_parts() -> None:
    """Norms of scattered tokens; two ranks' shared key/value head."""
    model = ModelConfig(2, 12, 10, 4, 1, 4, 20, element_bytes=4)
    for norms, parted in (("scattered", 2 * 12 + 2 * 4 * 12), ("replicated", 2 * 4 * 12)):
        cell = CellShape(tensor=2, norms=norms)
        found = Copies(RankShare(model, cell, CellPlace(1)), (1, 1)).sent("Z", 0)
        assert found == (0, 4 * parted)  # 2 (2 - 1)/2 of each element


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize(
    ("cell", "replicas"),
    [(CellShape(tensor=2), 2), (CellShape(tensor=3), 1), (CellShape(ulysses=2), 2)],
    ids=str,
)
def test_real_ranks_send_that_in_sums_for_all(
    cell: CellShape, replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.verify.trial import trial_part
    from verify import cell_ranks
    from verify.cell_samples import sample

    trial = sample(cell, replicas=replicas)
    counted: dict[tuple[int, str], Fraction] = defaultdict(Fraction)

    def count(tensor: Any, group: Any) -> None:
        if group is not None:
            purpose = group._group.purpose
            name = purpose if isinstance(purpose, str) else purpose[0]
            sent = Fraction(2 * (group.size - 1) * tensor.nbytes, group.size)
            counted[group._group.rank, name] += sent
            group.add_up(tensor).wait()

    for name in [each for each in cell_ranks.STAND_INS if each.endswith(".add_up")]:
        monkeypatch.setitem(cell_ranks.STAND_INS, name, count)
    cell_ranks.on_threads(trial, trial_part)
    model = replace(trial.work.model, element_bytes=8)
    for rank in range(replicas * cell.ranks):
        place = CellPlace(rank % cell.tensor, rank // cell.tensor % cell.ulysses)
        share = RankShare(model, cell, place)
        copies = Copies(share, trial.layers, replicas * cell.sequence)
        expected = [copies.sent("Z", stage) for stage in range(2)]
        assert counted[rank, "copies"] == sum(each.copies for each in expected)
        assert counted[rank, "holders"] == sum(each.holders for each in expected)


@pytest.mark.parametrize("shard", ["none", "optimizer", "full"])
def test_ranks_that_share_tokens_send_as_much_as_one_that_has_all(shard: Shard) -> None:
    """What a rank has of the parameters depends on the tensor axis alone."""
    for tensor, place in ((1, 0), (2, 1)):
        alone = Copies(
            RankShare(LLAMA, CellShape(tensor), CellPlace(tensor=place)), (10, 12, 10), 4, 1, shard
        )
        shared = CellShape(tensor, ulysses=2, ring=2)
        among = replace(alone, share=RankShare(LLAMA, shared, CellPlace(place, 1, 1)))
        for kind, stage in ((kind, stage) for kind in "GZUV" for stage in range(3)):
            assert among.sent(kind, stage) == alone.sent(kind, stage)
            assert among._sizes(stage) == alone._sizes(stage)
            assert alone.layout(stage) == among.layout(stage)

import pytest

from penstock.plan.balance import TokenCost
from penstock.plan.ragged_batch import RaggedBatches, SliceRule
from penstock.run.program.step_end import end_step
from penstock.run.step.agreement import meeting_order
from penstock.run.step.kept_executors import KeptExecutors
from penstock.schedules import build, registry

pytestmark = pytest.mark.torch


def test_orders_of_other_slices_meet_other_replicas_in_the_same_order() -> None:
    spec = next(spec for spec in registry().values() if spec.ragged)
    ragged = RaggedBatches(spec, 3, SliceRule(4), 20, TokenCost(1, 1))
    orders = [ragged.order(lengths).schedule for lengths in ([20, 1, 1], [3], [9, 9])]
    met = {meeting_order(end_step(order, reduced=True)) for order in orders}
    assert len(met) == 1


def test_stages_that_end_in_another_order_do_not() -> None:
    one = build("interleaved", devices=2, microbatches=4, chunks=2)
    other = build("zb-v", devices=2, microbatches=4)
    assert meeting_order(end_step(one, reduced=True)) != meeting_order(
        end_step(other, reduced=True)
    )


class Closing:
    """Stands for an executor."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_the_executor_that_was_used_longest_ago_is_ended_first() -> None:
    kept, made = KeptExecutors(most=2), {name: Closing() for name in "abc"}
    for name in "ab":
        kept.keep(name, made[name])  # type: ignore[arg-type]
    assert kept.find("a") is made["a"]
    kept.keep("c", made["c"])  # type: ignore[arg-type]
    assert [made[name].closed for name in "abc"] == [0, 1, 0]
    assert kept.find("b") is None
    assert len(kept) == 2
    kept.close()
    assert [made[name].closed for name in "abc"] == [1, 1, 1]

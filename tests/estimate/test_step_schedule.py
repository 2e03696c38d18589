"""A schedule that is made once for many layouts is the one that each of them would have alone."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from loops import all_cases
from penstock.check import require
from penstock.core.schedule import Schedule
from penstock.errors import PenstockError
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.request import layout_from
from penstock.estimate.step_schedule import StepSchedule, step_schedule
from penstock.lower import lower_for_running
from penstock.plan.communicators import communicators
from penstock.plan.memory import Gathered
from penstock.plan.receive_slots import slot_counts
from penstock.planner.records import all_work
from penstock.run.program.rotation import rotation_of
from penstock.run.program.sharded_schedule import TWO_BUFFERS, shard_weights
from penstock.run.program.step_end import end_step
from penstock.schedules import build
from penstock.transform import combine

CHANGES = ({}, {"offload": "all"}, {"recompute": "stages"}, {"vocabulary": "yes"})


def _layout(name: str, sliced: bool, **changes: str) -> TrainingLayout:
    row = {"model": "llama3.2-1b", "cluster": "h100:8", "tokens": 8192, "batch_tokens": 2**17}
    sizes = {"mesh": "pipeline=2", "schedule": name, "slices": 4 if sliced else None}
    return layout_from(row | sizes | changes)


def _alone(layout: TrainingLayout, lengths: tuple[int, ...]) -> Schedule:
    """The schedule of a layout, step by step."""
    plain = build(
        layout.schedule,
        devices=layout.pipeline,
        microbatches=layout.microbatches,
        slices=layout.slices,
    )
    wanted = {
        "recompute": layout.recompute.whole_stages,
        "vocabulary": layout.vocabulary,
        "offload": layout.offload == "all",
    }
    changed = combine(plain, [name for name, wants in wanted.items() if wants])
    shape = replace(changed.shape, boundary_bytes=(1,) * (changed.shape.stages - 1))
    if len(lengths) > 1:
        shares = tuple(Fraction(count, sum(lengths)) for count in lengths)
        shape = replace(shape, slice_share=(shares,) * shape.microbatches)
    found = replace(changed, shape=shape, derived={})
    if layout.shard == "full":
        found = shard_weights(found, TWO_BUFFERS)
    return end_step(found, reduced=True)


def _is_as_alone(step: StepSchedule, alone: Schedule, full: bool) -> None:
    assert step.schedule == alone
    assert step.schedule.shape.slice_share == alone.shape.slice_share
    program = lower_for_running(alone)
    assert step.slots == tuple(slot_counts(program))
    assert step.communicators(replicas=False) == communicators(program)
    assert step.communicators(replicas=True) == communicators(program, 2)
    turns = [rotation_of(alone, device) for device in range(alone.shape.devices)] if full else []
    users = (Gathered(each.users("weight"), each.users("dw")) for each in turns)
    assert [*map(_unordered, step.gathered)] == [*map(_unordered, users)]


def _unordered(users: Gathered) -> list[list[list[int]]]:
    return [sorted(map(sorted, each)) for each in users]


@pytest.mark.long
@pytest.mark.parametrize("shard", ["optimizer", "full"])
def test_a_schedule_is_the_one_that_a_layout_has_alone(shard: str) -> None:
    made = 0
    with all_cases() as case:
        for work, changes in product(all_work(), CHANGES):
            layout = _layout(work.spec.name, work.spec.sliced, shard=shard, **changes)
            try:
                step = step_schedule(layout)
            except PenstockError:  # not every change can be made to every schedule
                continue
            made += 1
            with case(work.spec.name, changes):
                _is_as_alone(step, _alone(layout, step.lengths), shard == "full")
    assert made > 60


def test_a_proof_serves_slices_of_all_lengths() -> None:
    """Two models cut sequences differently and have the same order."""
    layout = _layout("seq1f1b", sliced=True)
    other = replace(layout, tokens=2 * layout.tokens, batch_tokens=2 * layout.batch_tokens)
    one, two = step_schedule(layout), step_schedule(other)
    assert one.lengths != two.lengths
    assert one.schedule.derived["graph"] is two.schedule.derived["graph"]
    alone = replace(two.schedule, derived={})
    assert require(alone).proven
    assert (alone.shape.slice_share, two.schedule) == (two.schedule.shape.slice_share, alone)

"""Gangs between threads: the right result, split backwards too, and members side by side."""

from collections.abc import Callable

import pytest
import torch

from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.schedules import build
from penstock.transform import split_backward
from penstock.verify.cases import trials_of
from penstock.verify.changes import as_it_is
from penstock.verify.compare import TOLERANCE, difference
from penstock.verify.material import microbatches_of, parameters_of
from penstock.verify.oracle import answer
from penstock.verify.trial import trial_plan
from run.threads import Rig, shuffled

pytestmark = pytest.mark.torch


def _schedule() -> Schedule:
    """Three devices: gangs of two and three, among them whole microbatches; sequences are not cut,
    so that nothing before a slice is kept."""
    return build("sppo-msp", devices=3, microbatches=4, slices=1)


@pytest.mark.long
@pytest.mark.parametrize("change", [as_it_is, split_backward])
def test_gangs_of_whole_sequences_give_what_the_judge_gives(
    change: Callable[[Schedule], Schedule],
) -> None:
    schedule = change(_schedule())
    trials, _ = trials_of(schedule, None)
    trial = next(trial for trial in trials if trial.variant == "documents")
    rig = Rig(trial_plan(trial))
    batch = microbatches_of(trial.work.batch, trial.work.model.vocabulary)
    loss = rig.step(batch, shuffled(5))
    right = answer(trial.work.model, parameters_of(trial.work.model, torch.float64), batch)
    found = difference(loss, rig.held(), right)
    assert found.within(TOLERANCE["cpu"]["float64"]), found
    members_overlap(rig, schedule)
    assert rig.evaluate(batch, shuffled(6)) == pytest.approx(loss, rel=1e-14)


def members_overlap(rig: Rig, schedule: Schedule) -> None:
    for op in (op for op in schedule.gangs if op.kind != "W"):  # these have nothing to wait for
        spans = [_span(rig, device, op) for device in _members(schedule, op)]
        assert max(start for start, _ in spans) < min(end for _, end in spans)


def _members(schedule: Schedule, op: Op) -> list[int]:
    return schedule.table.device[schedule.table.rows_by_op[op]].tolist()


def _span(rig: Rig, device: int, op: Op) -> tuple[int, int]:
    spans = rig.executors[device].spans
    at = next(at for at, call in enumerate(spans.calls) if call.op == op)
    return spans.start[at], spans.end[at]

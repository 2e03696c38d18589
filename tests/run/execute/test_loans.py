"""Loans between threads: the right result, whoever helps whom, and ops that run side by side."""

from functools import cache
from typing import NamedTuple

import pytest
import torch

from penstock.core.ops import Op
from penstock.core.schedule import Loan
from penstock.run.execute.observer import Quiet
from penstock.run.program.calls import Call, Post
from penstock.schedules import build
from penstock.verify.cases import trials_of
from penstock.verify.compare import TOLERANCE, Difference, difference
from penstock.verify.material import microbatches_of, parameters_of
from penstock.verify.oracle import answer
from penstock.verify.trial import trial_plan
from run.threads import Rig, shuffled

pytestmark = pytest.mark.torch


class Watching(Quiet):
    """Notes what ops wait for while they run."""

    def __init__(self) -> None:
        self.running: Call | None = None
        self.waited: set[tuple[Op, str]] = set()

    def runs(self, call: Call) -> None:
        self.running = call

    def waits(self, call: Call, post: Post) -> None:
        if self.running is call:
            self.waited.add((call.op, post.buf.name))


class Ran(NamedTuple):
    found: Difference
    spans: dict[Op, tuple[int, int]]
    waited: set[tuple[Op, str]]
    loans: tuple[Loan, ...]


@cache
def _ran() -> Ran:
    """Levelled over four devices at eight slices: ops help, and lend to, three others."""
    schedule = build("slimpipe-level", devices=4, microbatches=2, slices=8)
    trials, _ = trials_of(schedule, None)
    trial = next(trial for trial in trials if trial.variant == "ragged")
    rig, watching = Rig(trial_plan(trial)), [Watching() for _ in range(4)]
    batch = microbatches_of(trial.work.batch, trial.work.model.vocabulary)
    for executor, observer in zip(rig.executors, watching):
        executor.observer = observer
    loss = rig.step(batch, shuffled(5))
    right = answer(trial.work.model, parameters_of(trial.work.model, torch.float64), batch)
    spans = {
        call.op: (start, end)
        for each in rig.executors
        for call, start, end in zip(each.spans.calls, each.spans.start, each.spans.end)
    }
    waited = set().union(*(each.waited for each in watching))
    return Ran(difference(loss, rig.held(), right), spans, waited, schedule.loans)


@pytest.mark.long
def test_loans_among_all_devices_give_what_the_judge_gives() -> None:
    ran = _ran()
    lent = [loan.heavy for loan in ran.loans]
    assert max(map(lent.count, lent)) > 1
    assert ran.found.within(TOLERANCE["cpu"]["float64"]), ran.found


def test_both_ops_of_a_loan_run_at_the_same_time() -> None:
    ran = _ran()
    for heavy, light, _ in ran.loans:
        (start, end), (other_start, other_end) = ran.spans[heavy], ran.spans[light]
        assert max(start, other_start) < min(end, other_end)


def test_an_op_that_lends_waits_for_its_result_and_says_so() -> None:
    ran = _ran()
    asked = {op for op, name in ran.waited if name == "lent"}
    waiting = {op for op, name in ran.waited if name == "returned"}
    assert asked
    assert asked <= {loan.light for loan in ran.loans}
    assert waiting
    assert waiting <= {loan.heavy for loan in ran.loans}

"""Plans that change while training, on real processes that are made slow in a known way."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from penstock.bench.measure.changing_plan import (
    ChangedStep,
    SlowMachine,
    adaptive_steps,
    fixed_steps,
    improving_steps,
)
from penstock.plan.adaptive import schedule_of_grouping
from penstock.plan.grouping import Grouping
from penstock.run.launch.worker_pool import Crew
from penstock.run.policies.changing import proposal_text, read_proposal
from penstock.run.policies.policy import Proposal
from penstock.run.program.step_plan import StepPlan
from penstock.schedules import build
from penstock.transform import recompute_all, split_backward, weigh_slices
from run.engine_jobs import trained_by_turns
from run.plans import plan_of
from run.policies.jobs import adaptive_by_hops

pytestmark = pytest.mark.torch

QUIET, LATE = 0.0, 0.3
WAITS = {"F": 0.01, "B": 0.02, "I": 0.01, "W": 0.01}
AT_ONCE = SlowMachine([{}] * 4, [0.0] * 12)
"""Nothing is made slow."""


def _candidates(*sizes: tuple[int, int]) -> dict[Grouping, StepPlan]:
    """Groups of microbatches of some rows, over 8 sequences."""
    found = {}
    for number, rows in sizes:
        way = Grouping(number, rows, 8 // rows)
        schedule = schedule_of_grouping(lambda m: build("1f1b", devices=4, microbatches=m), way)
        found[way] = plan_of(schedule, rows=rows)
    return found


def _losses(steps: Sequence[ChangedStep]) -> list[float]:
    return [step.loss for step in steps]


def _the_same_everywhere(found: Sequence[Sequence[ChangedStep]]) -> list[str]:
    """The plans of all steps, which every rank has changed to at the same time for one reason."""
    for other in found[1:]:
        assert [step.plan for step in other] == [step.plan for step in found[0]]
        assert [step.change for step in other] == [step.change for step in found[0]]
    return [step.plan for step in found[0]]


def test_all_ranks_take_the_plan_that_one_of_them_has_chosen(ranks: Crew) -> None:
    """The times are given: those of the paper's table, for 8 microbatches."""
    candidates = _candidates((1, 1), (2, 1), (4, 1), (8, 1))
    first, *others = ranks.run(adaptive_by_hops, candidates, [0, 1, 2, 2, 0, 0])
    assert all(other == first for other in others)
    plans, losses, changes = zip(*first)
    assert plans == ("1f1b", "1f1b", "1f1b+group2", "1f1b+group4", "1f1b+group4", "1f1b")
    assert changes[1:3] == (
        "from step 3 on: 1f1b+group2, predicted 39.000 s a step instead of 49.000 s: transfers "
        "take 1000.00 ms",
        "from step 4 on: 1f1b+group4, predicted 45.000 s a step instead of 47.000 s: transfers "
        "take 2000.00 ms",
    )
    fixed = ranks.run(trained_by_turns, [candidates[Grouping(1, 1, 8)]], [0] * 6)
    assert list(losses) == fixed[0][0]  # to the last bit: sums have the same order


@pytest.mark.matrix
def test_late_transfers_raise_the_group_and_fast_ones_lower_it(ranks: Crew) -> None:
    """Measured: ops take 60 ms for a microbatch, transfers 300 ms more in two of the steps.

    A group is kept while transfers take a third of an op, and processes that share a machine with
    others are woken late: so ops are long, and the run may look three times at quick transfers.
    """
    candidates = _candidates((1, 2), (2, 2), (4, 2))
    waits = {kind: 2 * time for kind, time in WAITS.items()}
    slow = SlowMachine([waits] * 4, [QUIET] * 2 + [LATE] * 2 + [QUIET] * 8)
    found = ranks.run(adaptive_steps, candidates, slow, 2, Fraction(1, 5))
    groups = [int(plan.partition("+group")[2] or 1) for plan in _the_same_everywhere(found)]
    assert groups[4] > 1  # after a look at a late step
    assert min(groups[6:]) < groups[4]  # after looks at some that were not
    raised = next(step.change for step in found[0][3:] if step.change)
    assert raised.why.startswith("transfers take ")
    assert raised.after < 0.8 * raised.before
    fixed = ranks.run(fixed_steps, candidates[Grouping(1, 2, 4)], AT_ONCE)
    assert _losses(found[0]) == _losses(fixed[0])


def test_a_run_may_choose_the_size_of_microbatches_too(ranks: Crew) -> None:
    """Waits do not depend on the size, so large microbatches are faster; the batch is the same."""
    candidates = _candidates((1, 1), (1, 4))
    slow = SlowMachine([WAITS] * 4, [QUIET] * 6)
    found = ranks.run(adaptive_steps, candidates, slow, 2, Fraction(1, 5))
    assert _the_same_everywhere(found) == ["1f1b"] * 6
    tried = found[0][1].change
    assert tried is not None
    assert tried.why == "microbatches of this size have not been measured yet"
    assert all(step.change is None for step in found[0][2:])  # the large ones are kept
    fixed = ranks.run(fixed_steps, candidates[Grouping(1, 1, 8)], AT_ONCE)
    assert _losses(found[0]) == pytest.approx(_losses(fixed[0])[:6], rel=1e-10, abs=0)


@pytest.mark.matrix
def test_a_solver_improves_the_order_of_an_uneven_model(ranks: Crew, tmp_path: Path) -> None:
    """The last stage takes twice as long. 1F1B with halved backwards leaves it waiting."""
    start = plan_of(split_backward(build("1f1b", devices=4, microbatches=4)))
    waits = [
        {kind: time * (2 if stage == 3 else 1) for kind, time in WAITS.items()}
        for stage in range(4)
    ]
    slow = SlowMachine(waits, [QUIET] * 6)
    found = ranks.run(improving_steps, start, slow, 2, tmp_path)
    assert _the_same_everywhere(found) == ["1f1b+split"] * 4 + ["1f1b+split+improved"] * 2
    change = next(step.change for step in found[0] if step.change)
    assert change.step == 4
    assert change.after < 0.98 * change.before
    assert "the solver" in change.why
    fixed = ranks.run(fixed_steps, start, AT_ONCE)
    assert _losses(found[0]) == _losses(fixed[0])[:6]
    assert list(tmp_path.iterdir())  # kept for later runs


@pytest.mark.parametrize("slices", [1, 3])
def test_a_proposal_is_told_as_text_and_read_as_it_was(slices: int) -> None:
    name = "seq1f1b" if slices > 1 else "1f1b"
    bare = build(name, devices=2, microbatches=4, slices=slices)
    shares = [[Fraction(n + 1, slices * (slices + 1) // 2) for n in range(slices)]] * 4
    schedule = weigh_slices(recompute_all(bare), shares) if slices > 1 else bare
    said = Proposal(schedule, ((8,) * slices,) * 4, 2, "transfers take 3 ms", 1.5, 1.25)
    heard = read_proposal(proposal_text(said))
    assert heard == said
    assert heard.schedule.digest == schedule.digest
    assert proposal_text(None) == ""

"""Models with experts on real processes: equal to one plain process, auxiliary loss included."""

from itertools import cycle

import pytest

from loops import each
from penstock.errors import ShapeError
from penstock.verify.trial import trial_plan
from penstock.verify.variants import Trial
from penstock.verify.verifier import TrialJob, Verifier
from verify import expert_mistakes
from verify.expert_trials import MIXTURES, expert_trial, sharing_experts

pytestmark = pytest.mark.torch

SOME = (
    ("1f1b", "labels"),
    ("seq1f1b", "ragged"),
    ("seq1f1b", "ring"),
    ("1f1b", "tensor"),
    ("zb-h1", "groups"),
)
"""Schedules and variants that each need something else of loads and slopes."""
MORE = (
    ("interleaved", "layers"),
    ("zb-v", "documents"),
    ("seq1f1b-zb", "lengths"),
    ("slimpipe", "recompute"),
    ("seq1f1b", "ulysses"),
    ("1f1b", "shard"),
    ("seq1f1b", "full"),
    ("dualpipev", "tied"),
    ("stp", "float32"),
    ("sppo", "labels"),
    ("slimpipe-exchange", "documents"),
    ("chronos", "ragged"),
    ("terapipe", "tensor"),
)
SHARED = (("1f1b", "replicas"), ("seq1f1b-zb", "replicas"))


def _equal(verifier: Verifier, trials: list[Trial]) -> None:
    wrong = {}
    for trial in trials:
        row = verifier.row(trial)
        if not row.equal:
            wrong[trial.schedule.name, trial.variant] = row.explanation
    assert wrong == {}


def test_experts_are_equal_to_one_process_in_pipelines(verifier: Verifier) -> None:
    mixtures = cycle(MIXTURES)
    _equal(verifier, [expert_trial(*each, next(mixtures)) for each in SOME])


@pytest.mark.matrix
def test_experts_are_equal_to_one_process_in_more_pipelines(verifier: Verifier) -> None:
    mixtures = cycle(MIXTURES)
    _equal(verifier, [expert_trial(*each, next(mixtures)) for each in MORE])


def test_replicas_that_share_experts_are_equal_to_one_process(verifier: Verifier) -> None:
    _equal(verifier, [sharing_experts(expert_trial(*each)) for each in SHARED])


@pytest.mark.parametrize(
    "mistake",
    [
        expert_mistakes.zeroed_exchange,
        expert_mistakes.dropped_row,
        expert_mistakes.experts_added_up,
    ],
)
def test_a_mistake_in_what_replicas_exchange_is_noticed(
    verifier: Verifier, mistake: TrialJob
) -> None:
    trial = sharing_experts(expert_trial("1f1b", "replicas", MIXTURES[1]))
    assert not verifier.row(trial, mistake).equal


@pytest.mark.parametrize(
    ("mistake", "schedule"),
    [
        (expert_mistakes.loads_of_one_stage, "1f1b"),
        (expert_mistakes.loads_of_one_slice, "seq1f1b"),
    ],
)
def test_loads_that_are_not_those_of_the_whole_microbatch_are_noticed(
    verifier: Verifier, mistake: TrialJob, schedule: str
) -> None:
    row = verifier.row(expert_trial(schedule, "labels"), mistake)
    assert ".gate.weight" in row.explanation


@each("schedule", ["helixpipe", "vocab-1f1b"])
def test_schedules_that_cannot_carry_loads_are_refused_by_name(schedule: str) -> None:
    with pytest.raises(ShapeError, match="the model has experts") as refusal:
        trial_plan(expert_trial(schedule, "float32"))
    assert "take a schedule" in refusal.value.hint

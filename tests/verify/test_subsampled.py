"""Models that leave out tokens on real processes: equal to one plain process in every schedule."""

from collections.abc import Sequence

import pytest

from loops import each
from penstock.schedules import registry
from penstock.verify.cases import trials_by_name
from penstock.verify.trial import trial_plan
from penstock.verify.variants import Trial
from penstock.verify.verifier import TrialJob, Verifier
from verify import subsampled_mistakes
from verify.subsampled_trials import BY_NAME, EVEN, subsampled_trial, with_brackets

pytestmark = pytest.mark.torch

SOME = (
    ("1f1b", "labels"),
    ("zb-v", "tied"),
    ("seq1f1b", "documents"),
    ("seq1f1b-zb", "recompute"),
    ("seq1f1b", "tensor"),
)
"""Schedules and variants that each need something else of brackets."""
LOCAL = (("zb-v", "documents"), ("dualpipev", "tensor"))
"""Those in which what goes past brackets stays on its device."""
MORE_LOCAL = (
    *(("1f1b-v", "labels"), ("v-half", "recompute"), ("stp-offload", "float32")),
    *(("v-zb", "ragged"), ("vocab-v-half", "tied"), ("zb-v", "full")),
)
MORE = (
    ("gpipe", "replicas"),
    ("zb-h1", "layers"),
    ("interleaved", "float32"),
    ("dualpipev", "documents"),
    ("stp", "ragged"),
    ("stp-offload", "layers"),
    ("slimpipe", "lengths"),
    ("slimpipe-vocab", "tied"),
    ("vocab-1f1b", "tensor"),
    ("v-half", "labels"),
    ("terapipe", "full"),
    ("sppo", "documents"),
    ("chronos-recompute", "shard"),
    ("1f1b-redis", "float32"),
)


def _equal(verifier: Verifier, trials: list[Trial]) -> None:
    wrong = {}
    for trial in trials:
        row = verifier.row(trial)
        if not row.equal:
            wrong[trial.schedule.name, trial.variant] = row.explanation
    assert wrong == {}


def test_kept_tokens_are_equal_to_one_process_in_pipelines(verifier: Verifier) -> None:
    _equal(verifier, [subsampled_trial(*each) for each in SOME])


def _local(cases: Sequence[tuple[str, str]]) -> list[Trial]:
    trials = [subsampled_trial(*each, EVEN) for each in cases]
    found = {trial.schedule.name: trial_plan(trial).layout.local_pairs for trial in trials}
    assert all(found.values()), found
    return trials


def test_what_stays_on_its_device_is_equal_to_one_process(verifier: Verifier) -> None:
    _equal(verifier, _local(LOCAL))


@pytest.mark.matrix
def test_what_stays_on_its_device_is_equal_in_more_pipelines(verifier: Verifier) -> None:
    _equal(verifier, _local(MORE_LOCAL))


@pytest.mark.matrix
def test_kept_tokens_are_equal_to_one_process_in_more_pipelines(verifier: Verifier) -> None:
    _equal(verifier, [subsampled_trial(*each) for each in MORE])


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        (subsampled_mistakes.forgotten_gradient, "embed_tokens"),
        (subsampled_mistakes.places_for_positions, "_proj"),
        (subsampled_mistakes.draws_by_order, "brackets"),
    ],
)
def test_a_mistake_in_what_brackets_carry_is_noticed(
    verifier: Verifier, mistake: TrialJob, named: str
) -> None:
    row = verifier.row(subsampled_trial("1f1b", "labels"), mistake)
    assert not row.equal
    assert named in row.explanation


def test_slices_select_for_themselves(verifier: Verifier) -> None:
    """The answer depends on the slices of a trial, and on nothing else of its schedule."""
    whole, cut = (subsampled_trial(name, "labels") for name in ("1f1b", "seq1f1b"))
    assert whole.work.slices[0] == (24,)
    assert cut.work.slices[0] == (12, 12)
    right = [verifier._answer(trial).loss for trial in (whole, cut)]
    assert abs(right[0] - right[1]) > 1e-6


@each("schedule", ["helixpipe", "slimpipe-exchange", "sppo-msp"])
def test_schedules_that_send_attention_elsewhere_are_refused_by_name(schedule: str) -> None:
    variant = with_brackets(BY_NAME["float32"], "T(T)")
    trials, notes = trials_by_name(registry()[schedule], [variant])
    assert trials == []
    assert "the model leaves out tokens, but" in notes[0]
    assert schedule in notes[0]


@each("variant", ["ulysses", "ring", "groups"])
def test_ranks_that_share_tokens_are_refused_by_name(variant: str) -> None:
    _, notes = trials_by_name(registry()["1f1b"], [with_brackets(BY_NAME[variant])])
    assert "2 ranks share the tokens of each slice" in notes[0]

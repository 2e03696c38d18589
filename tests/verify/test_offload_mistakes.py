"""Copies to the host that go wrong are found; slow ones are not wrong."""

import pytest

from penstock.schedules import build
from penstock.verify.cases import trials_of
from penstock.verify.variants import Trial
from penstock.verify.verifier import TrialJob, Verifier
from verify import offload_mistakes as mistakes

pytestmark = pytest.mark.torch


def _trial(share: str) -> Trial:
    schedule = build("sppo", devices=2, microbatches=1, slices=4, options={"ratios": share})
    trials, _ = trials_of(schedule, None)
    return next(trial for trial in trials if trial.variant == "labels")


@pytest.mark.parametrize("share", ["1", "1/2"])
def test_slow_copies_are_equal_and_memory_that_is_not_in_use_is_not_read(
    verifier: Verifier, share: str
) -> None:
    row = verifier.row(_trial(share), mistakes.slow_copies)
    assert row.equal
    assert row.bit_equal


@pytest.mark.parametrize(
    "mistake",
    [mistakes.lost_load, mistakes.load_not_awaited, mistakes.freed_too_early],
    ids=lambda mistake: mistake.__name__,
)
def test_a_mistake_with_copies_is_found(verifier: Verifier, mistake: TrialJob) -> None:
    trial = _trial("1/2")
    assert verifier.row(trial).equal
    wrong = verifier.row(trial, mistake)
    assert not wrong.equal
    assert wrong.difference.gradient > 1e-3

"""Copies to the host that go wrong are found; slow ones are not wrong."""

import pytest

from forked_crew import ForkedCrew
from penstock.errors import RunError
from penstock.schedules import build
from penstock.verify.cases import trials_of
from penstock.verify.trial import run_trial
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


@pytest.mark.processes
def test_a_copy_waits_for_its_turn() -> None:
    """Where two devices share a way to the host, one that is never told to go on does not go on."""
    request = {"devices": 2, "microbatches": 3, "chunks": 2, "options": {"ratio": "1/2"}}
    trials, _ = trials_of(build("po-h", **request), None)  # type: ignore[arg-type]
    trial = next(trial for trial in trials if trial.variant == "labels")
    with ForkedCrew(trial.processes) as crew:
        assert len(crew.run(run_trial, trial)) == trial.processes
        crew.limit = 3.0
        with pytest.raises(RunError, match="no answer after 3 s"):
            crew.run(mistakes.lost_turn, trial)

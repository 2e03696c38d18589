"""Attention of a gang that goes wrong makes the verifier say so."""

import pytest

from penstock.errors import RunError
from penstock.run.launch.worker_pool import Crew
from penstock.schedules import find
from penstock.verify.cases import trials_of
from penstock.verify.variants import Trial
from penstock.verify.verifier import TrialJob, Verifier
from verify import gang_mistakes, loan_mistakes

pytestmark = pytest.mark.torch


def _trial(variant: str = "ragged") -> Trial:
    spec = find("sppo-msp")
    trials, _ = trials_of(spec.build(spec.case(2, 1, None, 4)), None)
    found = next(trial for trial in trials if trial.variant == variant)
    assert found.schedule.gangs
    return found


@pytest.mark.parametrize(
    "mistake",
    [
        loan_mistakes.nothing_lent,
        loan_mistakes.nothing_returned,
        gang_mistakes.keys_of_members_left_out,
    ],
    ids=lambda mistake: mistake.__name__,
)
def test_an_answer_that_is_lost_or_left_out_is_found(verifier: Verifier, mistake: TrialJob) -> None:
    trial = _trial()
    assert verifier.row(trial).equal
    wrong = verifier.row(trial, mistake)
    assert not wrong.equal
    assert wrong.difference.gradient > 1e-3


def test_a_gang_shares_again_what_is_recomputed(verifier: Verifier) -> None:
    trial = _trial("recompute")
    assert {op.kind for op in trial.schedule.gangs} == {*"NRB"}
    assert verifier.row(trial).equal


@pytest.mark.processes
@pytest.mark.matrix
def test_an_answer_that_is_never_sent_ends_in_an_error_and_not_in_silence() -> None:
    trial = _trial()
    with Crew(trial.processes) as crew:
        crew.limit = 5.0
        with pytest.raises(RunError, match="no answer after 5 s"):
            crew.run(loan_mistakes.lost_result, trial)

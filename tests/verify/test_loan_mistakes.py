"""Lent attention that goes wrong makes the verifier say so."""

import pytest

from penstock.errors import RunError
from penstock.run.launch.worker_pool import Crew
from penstock.schedules import find
from penstock.verify.cases import trials_of
from penstock.verify.variants import Trial
from penstock.verify.verifier import TrialJob, Verifier
from verify import loan_mistakes

pytestmark = pytest.mark.torch


def _trial(name: str = "slimpipe-exchange", variant: str = "ragged") -> Trial:
    spec = find(name)
    trials, _ = trials_of(spec.build(spec.case(2, 2, None, 4)), None)
    found = next(trial for trial in trials if trial.variant == variant)
    assert found.schedule.loans
    return found


@pytest.mark.parametrize(
    "mistake",
    [
        loan_mistakes.nothing_lent,
        loan_mistakes.nothing_returned,
        loan_mistakes.one_part_alone,
    ],
    ids=lambda mistake: mistake.__name__,
)
def test_a_message_that_is_lost_on_its_way_is_found(verifier: Verifier, mistake: TrialJob) -> None:
    trial = _trial()
    assert verifier.row(trial).equal
    wrong = verifier.row(trial, mistake)
    assert not wrong.equal
    assert wrong.difference.gradient > 1e-3


def test_attention_is_lent_again_where_it_is_recomputed(verifier: Verifier) -> None:
    trial = _trial(variant="recompute")
    assert {loan.heavy.kind for loan in trial.schedule.loans} == {*"NRB"}
    assert verifier.row(trial).equal


@pytest.mark.processes
@pytest.mark.matrix
def test_a_result_that_is_never_sent_ends_in_an_error_and_not_in_silence() -> None:
    trial = _trial()
    with Crew(trial.processes) as crew:
        crew.limit = 5.0
        with pytest.raises(RunError, match="no answer after 5 s"):
            crew.run(loan_mistakes.lost_result, trial)

"""Help with attention that goes wrong, of a loan or of a gang, makes the verifier say so."""

import pytest

from forked_crew import ForkedCrew
from penstock.core.loans import helps_of
from penstock.errors import RunError
from penstock.schedules import Case, find
from penstock.verify.cases import trials_of
from penstock.verify.variants import Trial
from penstock.verify.verifier import TrialJob, Verifier
from verify import gang_mistakes, loan_mistakes

pytestmark = pytest.mark.torch

CASES = {"slimpipe-exchange": Case(2, 2, k=4), "sppo-msp": Case(2, 1, k=4)}
"""Loans, and gangs."""
each_kind = pytest.mark.parametrize("name", CASES)


def _trial(name: str, variant: str = "ragged") -> Trial:
    spec, case = find(name), CASES[name]
    trials, _ = trials_of(spec.build(spec.case(case.p, case.m, None, case.k)), None)
    found = next(trial for trial in trials if trial.variant == variant)
    assert helps_of(found.schedule)
    return found


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        *((name, loan_mistakes.nothing_lent) for name in CASES),
        *((name, loan_mistakes.nothing_returned) for name in CASES),
        ("slimpipe-exchange", loan_mistakes.one_part_alone),
        ("sppo-msp", gang_mistakes.keys_of_members_left_out),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_message_that_is_lost_or_left_out_is_found(
    verifier: Verifier, name: str, mistake: TrialJob
) -> None:
    trial = _trial(name)
    assert verifier.row(trial).equal
    wrong = verifier.row(trial, mistake)
    assert not wrong.equal
    assert wrong.difference.gradient > 1e-3


@each_kind
def test_attention_is_helped_with_again_where_it_is_recomputed(
    verifier: Verifier, name: str
) -> None:
    trial = _trial(name, "recompute")
    ops = trial.schedule.table.ops_at([each.helped for each in helps_of(trial.schedule)])
    assert {op.kind for op in ops} == {*"NRB"}
    assert verifier.row(trial).equal


@pytest.mark.processes
@pytest.mark.matrix
@each_kind
def test_a_result_that_is_never_sent_ends_in_an_error_and_not_in_silence(name: str) -> None:
    trial = _trial(name)
    with ForkedCrew(trial.processes) as crew:
        crew.limit = 5.0
        with pytest.raises(RunError, match="no answer after 5 s"):
            crew.run(loan_mistakes.lost_result, trial)

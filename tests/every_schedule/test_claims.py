"""What a record claims is what the simulator finds, exactly."""

from dataclasses import replace
from fractions import Fraction

import pytest

from every_schedule.cases import (
    PRICES,
    broken_claims,
    cases_of,
    completed,
    name_of,
    priced,
    specs,
)
from penstock.check import check
from penstock.schedules import Case, Spec


@pytest.mark.parametrize("spec", specs(), ids=name_of)
def test_every_case_is_proven(spec: Spec, first_case: bool) -> None:
    for case in _cases(spec, first_case):
        assert check(spec.build(case)).findings == (), case


@pytest.mark.parametrize("spec", specs(), ids=name_of)
def test_every_claim_equals_the_simulation(spec: Spec, first_case: bool) -> None:
    broken = [
        line
        for case in _cases(spec, first_case)
        for schedule in [spec.build(case)]
        for prices in PRICES
        for line in broken_claims(spec, schedule, priced(case, prices))
    ]
    assert broken == []


def _cases(spec: Spec, first_case: bool) -> list[Case]:
    return cases_of(spec)[: 1 if first_case else None]


@pytest.mark.parametrize("spec", specs(), ids=name_of)
def test_every_claim_is_tried_and_says_when_it_does_not_hold(spec: Spec) -> None:
    for claim in spec.claims:
        holds = [claim.when(priced(case, prices)) for case in cases_of(spec) for prices in PRICES]
        assert any(holds), f"{claim.formula} is never compared"
        assert all(holds) == (claim.condition == ""), f"{claim.formula}: condition and when differ"


@pytest.mark.parametrize("spec", specs(), ids=name_of)
def test_every_schedule_claims_its_time_and_its_memory(spec: Spec) -> None:
    claimed = {claim.quantity for claim in spec.claims}
    assert "peak" in claimed
    assert claimed & {"makespan", "span"}


def test_a_claim_that_is_off_by_the_smallest_amount_is_found() -> None:
    spec = specs()[0]
    case = completed(spec, spec.cases[0])
    wrong = replace(spec.claims[0], value=lambda c: spec.claims[0].value(c) + Fraction(1, 10**12))
    (line,) = broken_claims(replace(spec, claims=(wrong,)), spec.build(case), case)
    assert line.startswith(f"{spec.name} {case}: {wrong.quantity} is ")

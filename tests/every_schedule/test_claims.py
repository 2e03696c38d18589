"""What a record claims is what the simulator finds, exactly."""

from dataclasses import replace
from fractions import Fraction

import pytest

from every_schedule.cases import (
    PRICES,
    broken_claims,
    completed,
    name_of,
    priced,
    spec_cases,
    specs,
)
from penstock.check import check
from penstock.schedules import Case, Spec


@pytest.mark.parametrize(("spec", "case"), spec_cases(), ids=name_of)
def test_every_case_is_proven(spec: Spec, case: Case) -> None:
    assert check(spec.build(case)).findings == ()


@pytest.mark.parametrize(("spec", "case"), spec_cases(), ids=name_of)
def test_every_claim_equals_the_simulation(spec: Spec, case: Case) -> None:
    schedule = spec.build(case)
    broken = [
        line for prices in PRICES for line in broken_claims(spec, schedule, priced(case, prices))
    ]
    assert broken == []


@pytest.mark.parametrize("spec", specs(), ids=name_of)
def test_every_claim_is_tried_and_says_when_it_does_not_hold(spec: Spec) -> None:
    for claim in spec.claims:
        holds = [
            claim.when(priced(case, prices))
            for owner, case in spec_cases()
            if owner is spec
            for prices in PRICES
        ]
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

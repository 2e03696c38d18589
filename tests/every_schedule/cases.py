"""Requests for every registered schedule, and the prices under which claims are read."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.schedules import Case, Spec, registry
from penstock.sim import simulate
from penstock.sim.timeline import Timeline

PRICES = (
    {"F": 1, "I": 1, "W": 1, "act": 1, "stash": 1},
    {"F": 3, "I": 4, "W": 2, "act": 2, "stash": 1},
    {"F": 10, "I": 11, "W": 8, "act": 1, "stash": 1},
    {"F": 2, "I": 2, "W": 1, "act": 3, "stash": 2},
    {"F": 2, "I": 1, "W": 1, "act": 1, "stash": 0},
    {"F": 1, "I": 2, "W": 3, "act": 1, "stash": 2},
)


def specs() -> list[Spec]:
    return list(registry().values())


def completed(spec: Spec, case: Case) -> Case:
    """The case with the defaults of its options."""
    return spec.case(case.p, case.m, case.v, case.k, case.options)


def spec_cases() -> list[tuple[Spec, Case]]:
    """Every case of every record."""
    return [(spec, completed(spec, case)) for spec in specs() for case in spec.cases]


def name_of(value: object) -> str:
    """How pytest calls a parameter."""
    return value.name if isinstance(value, Spec) else str(value)


def priced(case: Case, prices: dict[str, int]) -> Case:
    """The case at other times and sizes."""
    exact: dict[str, Any] = {name: Fraction(price) for name, price in prices.items()}
    return replace(case, **exact)


def timeline(schedule: Schedule, case: Case) -> Timeline:
    """The simulation at the prices of the case."""
    return simulate(
        schedule,
        UnitCost(
            times={"F": case.F, "I": case.I, "W": case.W},
            sizes={"act": case.act, "stash": case.stash},
        ),
    )


def broken_claims(spec: Spec, schedule: Schedule, case: Case) -> Iterator[str]:
    """Claims of a record that the simulation does not confirm."""
    result = timeline(schedule, case)
    for claim in spec.claims:
        if claim.when(case):
            found, said = getattr(result, claim.quantity), claim.value(case)
            if found != said:
                yield f"{spec.name} {case}: {claim.quantity} is {found}, not {claim.formula}={said}"

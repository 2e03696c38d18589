"""Requests for every registered schedule, and the prices under which claims are read."""

from collections.abc import Iterator
from fractions import Fraction

from penstock.core.schedule import Schedule
from penstock.cost.model import SIZES, UnitCost
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
    {"F": 4, "I": 1, "W": 1, "act": 1, "stash": 1},
)


def specs() -> list[Spec]:
    return list(registry().values())


def completed(spec: Spec, case: Case) -> Case:
    """The case with the defaults of its options."""
    return spec.case(case.p, case.m, case.v, case.k, case.options)


def cases_of(spec: Spec) -> list[Case]:
    """Every case of a record."""
    return [completed(spec, case) for case in spec.cases]


def name_of(value: object) -> str:
    """How pytest calls a parameter."""
    return value.name if isinstance(value, Spec) else str(value)


def priced(case: Case, prices: dict[str, int]) -> Case:
    """The case at other times and sizes."""
    return case.at({name: Fraction(price) for name, price in prices.items()})


def timeline(schedule: Schedule, case: Case) -> Timeline:
    """The simulation at the prices of the case."""
    return simulate(schedule, cost_of(case))


def cost_of(case: Case) -> UnitCost:
    """The prices of the case as a cost model."""
    sizes = {name: price for name, price in case.others.items() if name in SIZES}
    times = {name: price for name, price in case.others.items() if name not in SIZES}
    return UnitCost(
        times={"F": case.F, "I": case.I, "W": case.W, **times},
        sizes={"act": case.act, "stash": case.stash, **sizes},
        hop=case.hop,
    )


def broken_claims(spec: Spec, schedule: Schedule, case: Case) -> Iterator[str]:
    """Claims of a record that the simulation does not confirm; none where a need is not met."""
    if not all(need.holds(case) for need in spec.needs):
        return  # a limit that was enough at other sizes
    ran = spec.build(case) if spec.priced else schedule
    result = timeline(ran, case)
    for claim in spec.claims:
        if claim.when(case):
            found = getattr(result, claim.quantity)
            if not claim.agrees(found, case):
                said = f"{claim.formula}={claim.value(case)}"
                yield f"{spec.name} {case}: {claim.quantity} is {found}, not {said}"

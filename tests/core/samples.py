"""Schedules that between them use every part of the core, for tests over all of them."""

from fractions import Fraction

import pytest

from core.worked import (
    VOCABULARY_1,
    VOCABULARY_2,
    braided,
    helix,
    multiplexed,
    offloaded,
    vocabulary,
)
from penstock.core.schedule import Schedule
from penstock.schedules import registry


def registered() -> list[tuple[str, Schedule]]:
    """Every registered schedule on the cases of its record."""
    return [
        (f"{spec.name} {case}", spec.build(spec.case(case.p, case.m, case.v, case.k, case.options)))
        for spec in registry().values()
        for case in spec.cases
        if case.p * case.m * case.k * case.v <= 200
    ]


def worked() -> list[tuple[str, Schedule]]:
    """What papers print for kinds that no plain pipeline has."""
    return [
        ("vocabulary 1", vocabulary(VOCABULARY_1, "T")),
        ("vocabulary 2", vocabulary(VOCABULARY_2, "S")),
        ("helix", helix()),
        ("braided", braided()),
        ("gangs", multiplexed()),
        ("offloaded", offloaded()),
        ("half offloaded", offloaded(Fraction(1, 2))),
    ]


every = pytest.mark.parametrize(
    "schedule", [pytest.param(schedule, id=name) for name, schedule in registered() + worked()]
)
plain = pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(schedule, id=name)
        for name, schedule in registered()
        if not (schedule.gangs or schedule.shares)
    ],
)
"""Those in which every buffer has one life, on one device."""

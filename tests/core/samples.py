"""Schedules that between them use every part of the core, for tests over all of them."""

from collections.abc import Iterator
from fractions import Fraction
from functools import cache, partial

from core.worked import (
    VOCABULARY_1,
    VOCABULARY_2,
    braided,
    helix,
    multiplexed,
    offloaded,
    vocabulary,
)
from loops import looped
from penstock.core.schedule import Schedule
from penstock.schedules import registry

Named = tuple[str, Schedule]

LARGEST = 200
"""Cases with more microbatches x slices x stages than this are left to other tests."""


def small(name: str) -> list[int]:
    """Which cases of a record are small enough to be walked op by op."""
    cases = enumerate(registry()[name].cases)
    return [index for index, case in cases if case.p * case.m * case.k * case.v <= LARGEST]


@cache
def built(name: str, index: int) -> Named:
    """A case of a registered schedule, made when a test first asks for it."""
    spec = registry()[name]
    case = spec.cases[index]
    schedule = spec.build(spec.case(case.p, case.m, case.v, case.k, case.options))
    return f"{name} {case}", schedule


def registered(name: str) -> Iterator[Named]:
    """A registered schedule on the cases of its record, one after the other."""
    return (built(name, index) for index in small(name))


@cache
def worked() -> tuple[Named, ...]:
    """What papers print for kinds that no plain pipeline has."""
    return (
        ("vocabulary 1", vocabulary(VOCABULARY_1, "T")),
        ("vocabulary 2", vocabulary(VOCABULARY_2, "S")),
        ("helix", helix()),
        ("braided", braided()),
        ("gangs", multiplexed()),
        ("offloaded", offloaded()),
        ("half offloaded", offloaded(Fraction(1, 2))),
    )


def single_lives(name: str) -> Iterator[Named]:
    """The cases of a schedule in which every buffer has one life, on one device."""
    return (named for named in registered(name) if not (named[1].gangs or named[1].shares))


NAMES = [name for name in registry() if small(name)]
every = looped("schedule", {name: partial(registered, name) for name in NAMES} | {"worked": worked})
plain = looped("schedule", {name: partial(single_lives, name) for name in NAMES})

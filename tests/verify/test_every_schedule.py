"""Every registered schedule, on real processes, under the variants."""

import pytest

from loops import one_of
from penstock.schedules import registry
from penstock.verify.cases import ANY_SIZES, CaseSizes, trials_by_name
from penstock.verify.variants import VARIANTS, Trial
from penstock.verify.verifier import Verifier
from verify.small_sizes import SMALL

pytestmark = pytest.mark.torch

NAMES = list(registry())
EACH = 1
"""Variants of each schedule in every run of the tests; the matrix takes the others."""


def _trials(name: str, sizes: CaseSizes) -> list[Trial]:
    """What is to be compared, or the reason why the schedule cannot be run."""
    trials, notes = trials_by_name(registry()[name], sizes=sizes)
    if not trials:
        assert any(f"{name}: not run, " in note for note in notes)
        pytest.skip(notes[0])
    return trials


def _equal(verifier: Verifier, trials: list[Trial]) -> None:
    rows = [verifier.row(trial) for trial in trials]
    assert [row.explanation for row in rows] == [""] * len(rows)
    assert all(row.equal for row in rows)


def in_turn(name: str) -> list[str]:
    """All variants, another one first for the next schedule, so that each is met by many."""
    first = NAMES.index(name) % len(VARIANTS)
    return [variant.name for variant in (*VARIANTS[first:], *VARIANTS[:first])]


def chosen(name: str, trials: list[Trial]) -> set[str]:
    """The first of those that a schedule can have."""
    possible = {trial.variant for trial in trials}
    return set([variant for variant in in_turn(name) if variant in possible][:EACH])


@pytest.mark.parametrize("name", one_of(2, ((name,) for name in NAMES)))
def test_a_schedule_is_equal_to_one_process_under_some_variants(
    verifier: Verifier, name: str
) -> None:
    trials = _trials(name, ANY_SIZES)
    taken = [trial for trial in trials if trial.variant in chosen(name, trials)]
    assert taken
    _equal(verifier, taken)


@pytest.mark.matrix
@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_is_equal_to_one_process_under_every_third_variant(
    verifier: Verifier, name: str
) -> None:
    taken = _trials(name, SMALL)[NAMES.index(name) % 3 :: 3]
    assert taken
    _equal(verifier, taken)


@pytest.mark.matrix
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_is_equal_to_one_process_under_every_variant(
    verifier: Verifier, name: str
) -> None:
    _equal(verifier, _trials(name, ANY_SIZES))


def test_each_variant_is_met_by_its_part_of_the_schedules() -> None:
    for variant in VARIANTS:
        met = sum(variant.name in in_turn(name)[:EACH] for name in NAMES)
        assert met >= len(NAMES) * EACH // len(VARIANTS), variant.name

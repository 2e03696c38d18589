"""Every registered schedule, on real processes, under the variants."""

import pytest

from penstock.schedules import registry
from penstock.verify.cases import trials_by_name
from penstock.verify.variants import VARIANTS, Trial
from penstock.verify.verifier import Verifier

pytestmark = pytest.mark.torch

NAMES = list(registry())
EACH = 1
"""Variants of each schedule in every run of the tests; the matrix takes the others."""


def _trials(name: str) -> list[Trial]:
    """What is to be compared, or the reason why the schedule cannot be run."""
    trials, notes = trials_by_name(registry()[name])
    if not trials:
        assert any(f"{name}: not run, " in note for note in notes)
        pytest.skip(notes[0])
    return trials


def _equal(verifier: Verifier, trials: list[Trial]) -> None:
    rows = [verifier.row(trial) for trial in trials]
    assert [row.explanation for row in rows] == [""] * len(rows)
    assert all(row.equal for row in rows)


def chosen(name: str) -> set[str]:
    """Some variants, others for the next schedule, so that all of them are met by many."""
    first, step = NAMES.index(name), len(VARIANTS) // EACH
    return {VARIANTS[(first + step * turn) % len(VARIANTS)].name for turn in range(EACH)}


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_is_equal_to_one_process_under_some_variants(
    verifier: Verifier, name: str
) -> None:
    trials = [trial for trial in _trials(name) if trial.variant in chosen(name)]
    assert trials
    _equal(verifier, trials)


@pytest.mark.matrix
@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_is_equal_to_one_process_under_every_other_variant(
    verifier: Verifier, name: str
) -> None:
    trials = [trial for trial in _trials(name) if trial.variant not in chosen(name)]
    assert trials
    _equal(verifier, trials)


def test_each_variant_is_met_by_its_part_of_the_schedules() -> None:
    for variant in VARIANTS:
        met = sum(variant.name in chosen(name) for name in NAMES)
        assert met >= len(NAMES) * EACH // len(VARIANTS), variant.name

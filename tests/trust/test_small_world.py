"""Exhaustive small world: the checker and the explorer agree on every schedule and every mutant."""

from collections.abc import Callable

import pytest

from penstock.check import check
from penstock.schedules import registry

from .explorer import Verdict, explore
from .small_world import plays, schedule_of
from .specimens import specimens
from .tally import tally

EACH = 2
"""Mutants of each kind of each play; `python -m tests.trust.report` takes more."""
NAMES = list(registry())


@pytest.mark.parametrize("name", NAMES)
def test_every_shape_of_a_registered_schedule_is_proven_and_plays_to_its_end(name: str) -> None:
    assert plays(name), f"{name} has no shape in the small world"
    for label, play in plays(name).items():
        assert explore(play) == Verdict("ok"), label
        assert check(schedule_of(play)).findings == (), label


@pytest.mark.parametrize("name", NAMES)
def test_check_judges_mutants_as_the_explorer_does_and_names_what_was_displaced(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    result = tally(plays(name), EACH)
    record_property("tally", [(*key, count) for key, count in result.counts.items()])
    assert result.disagreements == []
    wrong = result.total("mutants") - result.total("legal")
    assert result.total("refused") == result.total("named") == wrong > 0


@pytest.mark.parametrize("name", specimens())
def test_check_judges_all_mutants_of_a_specimen_as_the_explorer_does(name: str) -> None:
    assert tally({name: specimens()[name]}, each=200).disagreements == []

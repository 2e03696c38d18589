"""Exhaustive small world: the checker and the explorer agree on every schedule and every mutant."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

import pytest

from penstock.check import check
from penstock.schedules import registry

from .board import Board, Play, endings, run
from .explorer import Verdict, explore
from .mutants import mutants
from .small_world import plays, schedule_of
from .specimens import specimens
from .tally import tally

NAMES = list(registry())
MUTANTS = 50
"""Mutants of each kind of each schedule; `python -m tests.trust.report` takes more."""
POSITIONS = 2_000
"""Plays with at most so many positions are played in every order of moves."""


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
    chosen = _spread(plays(name))
    result = tally(chosen, each=-(-MUTANTS // len(chosen)))
    record_property("tally", [(*key, count) for key, count in result.counts.items()])
    assert result.disagreements == []
    wrong = result.total("mutants") - result.total("legal")
    assert result.total("refused") == result.total("named") == wrong > 4 * MUTANTS


def _spread(all_plays: Mapping[str, Play]) -> dict[str, Play]:
    """At most as many plays as mutants are wanted, from everywhere among them."""
    return dict(list(all_plays.items())[:: -(-len(all_plays) // MUTANTS)])


@pytest.mark.parametrize("name", specimens())
def test_check_judges_mutants_of_a_specimen_as_the_explorer_does(name: str) -> None:
    result = tally({name: specimens()[name]}, each=100)
    assert result.disagreements == []
    assert result.total("refused") == result.total("named") > 50


@pytest.mark.parametrize("name", NAMES)
def test_small_plays_and_their_mutants_end_alike_in_every_order_of_moves(name: str) -> None:
    small = {label: play for label, play in plays(name).items() if _positions(play) <= POSITIONS}
    for label, play in list(small.items())[-6:]:
        for mutant in mutants(play.lanes, 2, label):
            mutated = replace(play, lanes=mutant.lanes)
            if explore(mutated).fault in ("ok", "stuck"):
                ends, _ = endings(Board(mutated))
                assert ends == {frozenset(run(Board(mutated)).heads())}, (label, mutant.site)


def _positions(play: Play) -> int:
    return prod(len(lane) + 1 for lane in play.lanes.values())

"""The small world: the checker and the explorer agree on every schedule and every mutant.

The matrix takes all of it. A sample of shapes, with mutants of each, is taken every day, and in the
quick tier one shape of each schedule.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

import pytest

from loops import all_cases, one_in, one_of
from penstock.check import check
from penstock.schedules import registry

from .board import Board, Play, endings, run
from .explorer import Verdict, explore
from .mutants import mutants
from .small_world import first, plays, sampled, schedule_of
from .specimens import specimens
from .tally import tally

NAMES = list(registry())
MUTANTS, SAMPLED_MUTANTS, FIRST_MUTANTS = 50, 10, 5
"""Mutants of each kind of each schedule; `python -m tests.trust.report` takes more."""
POSITIONS = 2_000
"""Plays with at most so many positions are played in every order of moves."""


Record = Callable[[str, object], None]


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_sampled_shapes_of_a_registered_schedule_are_proven_and_play_to_their_end(
    name: str, first_case: bool
) -> None:
    _proven_and_played(name, first(name) if first_case else sampled(name))


@pytest.mark.matrix
@pytest.mark.parametrize("name", NAMES)
def test_every_shape_of_a_registered_schedule_is_proven_and_plays_to_its_end(name: str) -> None:
    _proven_and_played(name, plays(name))


def _proven_and_played(name: str, chosen: Mapping[str, Play]) -> None:
    assert chosen, f"{name} has no shape in the small world"
    with all_cases() as case:
        for label, play in chosen.items():
            with case(label):
                assert explore(play) == Verdict("ok")
                assert check(schedule_of(play)).findings == ()


@pytest.mark.long
@pytest.mark.parametrize("name", one_of(2, ((name,) for name in NAMES)))
def test_check_judges_mutants_of_sampled_shapes_as_the_explorer_does(
    name: str, record_property: Record, first_case: bool
) -> None:
    if first_case:
        _judged_alike(first(name), FIRST_MUTANTS, record_property)
    else:
        _judged_alike(sampled(name), SAMPLED_MUTANTS, record_property)


@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_check_judges_mutants_as_the_explorer_does_and_names_what_was_displaced(
    name: str, record_property: Record
) -> None:
    _judged_alike(plays(name), MUTANTS, record_property)


def _judged_alike(all_plays: Mapping[str, Play], count: int, record: Record) -> None:
    """Of `count` mutants of each kind, those are refused that are wrong, and the mistake named."""
    chosen = _spread(all_plays, count)
    result = tally(chosen, each=-(-count // len(chosen)))
    record("tally", [(*key, count) for key, count in result.counts.items()])
    assert result.disagreements == []
    wrong = result.total("mutants") - result.total("legal")
    assert result.total("refused") == result.total("named") == wrong > 4 * count


def _spread(all_plays: Mapping[str, Play], count: int) -> dict[str, Play]:
    """At most as many plays as mutants are wanted, from everywhere among them."""
    return dict(list(all_plays.items())[:: -(-len(all_plays) // count)])


@pytest.mark.long
@pytest.mark.parametrize("name", specimens())
def test_check_judges_mutants_of_a_specimen_as_the_explorer_does(name: str) -> None:
    result = tally({name: specimens()[name]}, each=100)
    assert result.disagreements == []
    assert result.total("refused") == result.total("named") > 50


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_sampled_plays_and_their_mutants_end_alike_in_every_order_of_moves(
    name: str, first_case: bool
) -> None:
    _ends_alike(first(name) if first_case else sampled(name))


@pytest.mark.matrix
@pytest.mark.parametrize("name", NAMES)
def test_small_plays_and_their_mutants_end_alike_in_every_order_of_moves(name: str) -> None:
    _ends_alike(plays(name))


def _ends_alike(all_plays: Mapping[str, Play]) -> None:
    small = {label: play for label, play in all_plays.items() if _positions(play) <= POSITIONS}
    for label, play in list(small.items())[-6:]:
        for mutant in mutants(play.lanes, 2, label):
            mutated = replace(play, lanes=mutant.lanes)
            if explore(mutated).fault in ("ok", "stuck"):
                ends, _ = endings(Board(mutated))
                assert ends == {frozenset(run(Board(mutated)).heads())}, (label, mutant.site)


def _positions(play: Play) -> int:
    return prod(len(lane) + 1 for lane in play.lanes.values())

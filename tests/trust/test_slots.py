"""The slots that the lowering plans are the fewest with which the game with channels ends well."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from loops import one_in, one_of
from penstock.lower import needed_slots
from penstock.schedules import registry

from .board import Play
from .channels import gets_stuck, smallest_slots
from .explorer import explore
from .mutants import mutants
from .small_world import first, plays, sampled, schedule_of
from .specimens import lanes, specimens, work
from .world import World

NAMES = list(registry())
OPS = 40
"""Plays with at most so much work are searched, and the smallest of every schedule."""
COLLECTIVE = {"vocabulary, algorithm 1", "vocabulary, algorithm 2", "input layer", "gang"}
"""Specimens whose devices also exchange parts of one thing, which no channel here carries."""

UPSIDE_DOWN = """
0 compute: 0F0 0F1 0F2 0B0 0B1 0B2
1 compute: 1F2 1F1 1F0 1B2 1B0 1B1
"""

BRAIDED_FORWARDS = """
0 compute: 0F0 0F1 0B0 0B1
1 compute: 1F0 1F1 1B0 1B1
"""


LOANS = ("lent", "returned")


def planned(play: Play) -> dict[tuple[int, int, str], int]:
    """Slots of what the game carries. Ends of a loan run in lock-step: they need one slot."""
    slots = needed_slots(schedule_of(play))
    loans = {(c.source, c.target, c.payload): n for c, n in slots.items() if c.payload in LOANS}
    assert set(loans) == {
        (play.places[sender][0][0], play.places[reader][0][0], payload)
        for ends in play.loans
        for sender, reader, payload in zip(ends, ends[::-1], LOANS)
    }
    assert set(loans.values()) <= {1}
    channels = ((c.source, c.target, c.payload) for c in slots)
    return {c: n for c, n in zip(channels, slots.values()) if c not in loans}


def carried(play: Play) -> bool:
    """Whether devices exchange nothing but inputs and gradients of stages."""
    return (play.world.embed, play.world.loss) == ("F", "F") and not play.gangs


def legal_mutants(all_plays: Mapping[str, Play]) -> Iterator[tuple[str, Play]]:
    """Small plays of a schedule and what random changes leave legal, with work to carry."""
    several = {label: play for label, play in all_plays.items() if play.world.devices > 1}
    several = {label: play for label, play in several.items() if carried(play)}
    least = min((len(play.places) for play in several.values()), default=0)
    for label, play in several.items():
        if len(play.places) <= max(OPS, least):
            yield label, play
            for mutant in mutants(
                {place: list(lane) for place, lane in play.lanes.items()}, 2, label
            ):
                mutated = replace(play, lanes=mutant.lanes)
                if explore(mutated).fault == "ok":
                    yield f"{label}, {mutant.kind} {mutant.site}", mutated


@pytest.mark.long
@pytest.mark.parametrize("name", one_of(2, ((name,) for name in NAMES)))
def test_planned_slots_of_sampled_shapes_are_the_fewest_that_do_not_get_stuck(
    name: str, first_case: bool
) -> None:
    _planned_slots_are_the_fewest(first(name) if first_case else sampled(name))


@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_planned_slots_are_the_fewest_that_do_not_get_stuck(name: str) -> None:
    _planned_slots_are_the_fewest(plays(name))


def _planned_slots_are_the_fewest(all_plays: Mapping[str, Play]) -> None:
    compared = 0
    for label, play in legal_mutants(all_plays):
        slots = smallest_slots(play)
        assert planned(play) == slots, label
        assert not gets_stuck(play, slots), label
        compared += 1
    several = [play for play in all_plays.values() if play.world.devices > 1]
    assert compared > 0 or not any(map(carried, several))


@pytest.mark.parametrize("name", sorted(specimens().keys() - COLLECTIVE))
def test_planned_slots_of_a_specimen_are_the_fewest_that_do_not_get_stuck(name: str) -> None:
    play = specimens()[name]
    assert planned(play) == smallest_slots(play)


def test_reading_upside_down_needs_a_slot_for_everything_sent_before() -> None:
    play = Play(World(2, 2, (1, 1, 1)), lanes(UPSIDE_DOWN))
    assert planned(play) == smallest_slots(play) == {(0, 1, "x"): 3, (1, 0, "g"): 2}


def test_braided_work_holds_the_slots_of_all_its_strands_at_once() -> None:
    play = Play(World(2, 2, (1, 1)), lanes(BRAIDED_FORWARDS), pairs=((work("1F0"), work("1F1")),))
    assert planned(play) == smallest_slots(play) == {(0, 1, "x"): 2, (1, 0, "g"): 1}

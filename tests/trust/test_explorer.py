"""The explorer is only worth something if it is right: plays whose end is plain to see."""

import re
from dataclasses import replace

import pytest

from .board import Board, Play, endings
from .channels import ChannelBoard, gets_stuck, parcels, smallest_slots
from .explorer import Verdict, explore
from .specimens import lanes, specimens, work
from .world import World

SPECIMENS = specimens()

ONE_UNIT = "0 compute: 0F0 0B0"

SLICED = """
0 compute: 0F0 0F0.1 0B0.1 0B0
1 compute: 1F0 1F0.1 1B0.1 1B0
"""

HALVES = """
0 compute: 0F0 0I0 0W0
1 compute: 1F0 1I0 1W0
"""


def play(text: str, world: World) -> Play:
    return Play(world, lanes(text))


def swapped(text: str, first: str, second: str) -> str:
    other = {first: second, second: first}
    return re.sub(r"\S+", lambda word: other.get(word[0], word[0]), text)


@pytest.mark.parametrize("name", SPECIMENS)
def test_every_specimen_ends_well(name: str) -> None:
    assert explore(SPECIMENS[name]) == Verdict("ok")


@pytest.mark.parametrize(
    ("text", "fault", "named"),
    [
        ("0 compute: 0F0", "count", "0B0"),
        ("0 compute: 0F0 0F0 0B0", "count", "0F0"),
        ("0 compute: 0F0 0B0 0B1", "count", "0B1"),
        ("0 compute: 0F0 0B0 1F0", "count", "1F0"),
        ("0 compute: 0F0 0B0 0F0.1", "count", "0F0.1"),
        ("0 compute: 0F0 0I0", "count", "0W0"),
        ("0 compute: 0F0 0B0 0W0", "count", "0W0"),
        ("0 compute: 0F0 0B0 0I0", "count", "0I0"),
        ("0 compute: 0N0 0B0", "count", "0R0"),
        ("0 compute: 0F0 0R0 0B0", "count", "0R0"),
        ("0 compute: 0F0 0B0\n0 copy: 0O0", "count", "0L0"),
        ("0 compute: 0F0 0B0 0S0", "count", "0S0"),
        ("0 compute: 0F0 0B0\n0 copy: 0L0 0O0", "stuck", "0L0"),
        ("0 compute: 0F0 0O0 0L0 0B0", "place", "0O0"),
        ("0 compute: 0F0\n0 copy: 0B0", "place", "0B0"),
        ("0 compute: 0F0\n1 compute: 0B0", "home", "0B0"),
        ("0 compute: 0B0 0F0", "stuck", "0B0"),
        ("0 compute: 0F0 0W0 0I0", "stuck", "0W0"),
        ("0 compute: 0R0 0N0 0B0", "stuck", "0R0"),
    ],
)
def test_a_broken_single_unit_is_named(text: str, fault: str, named: str) -> None:
    verdict = explore(play(text, World(2, 1, (1,))))
    assert verdict.fault == fault
    assert work(named) in verdict.works


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ("0F0", "0F0.1", {"0F0.1", "1F0"}),
        ("1F0", "1F0.1", {"0B0.1", "1F0.1"}),
        ("0B0", "0B0.1", {"0B0"}),
        ("1B0", "1B0.1", {"0B0.1", "1B0"}),
    ],
)
def test_slices_go_forward_ascending_and_backward_descending(
    first: str, second: str, left: set[str]
) -> None:
    verdict = explore(play(swapped(SLICED, first, second), World(2, 2, (2,))))
    assert verdict == Verdict("stuck", frozenset(map(work, left)))


def test_weight_gradients_wait_for_their_own_half_only() -> None:
    world = World(2, 2, (1,))
    assert explore(play(HALVES, world)).fault == "ok"
    assert explore(play(swapped(HALVES, "0I0", "0W0"), world)).fault == "stuck"


@pytest.mark.parametrize(
    ("name", "first", "second", "fault"),
    [
        ("vocabulary, algorithm 1", "3T0", "3B0", "stuck"),
        ("vocabulary, algorithm 1", "3T7", "3B7", "stuck"),
        ("vocabulary, algorithm 2", "3T7", "3B7", "ok"),
        ("vocabulary, algorithm 2", "3S7", "3B7", "stuck"),
        ("vocabulary, algorithm 2", "2S0", "2S1", "order"),
        ("vocabulary, algorithm 2", "2T6", "2T7", "order"),
        ("vocabulary, algorithm 2", "3T0", "3B0", "ok"),
        ("input layer", "1E0", "1E1", "order"),
        ("input layer", "0D0", "0B0", "stuck"),
        ("recompute", "0R0", "0B0", "stuck"),
        ("offload", "0L0", "0L0.1", "ok"),
        ("offload", "0O0", "0L0.1", "stuck"),
        ("skip", "3B0", "0B0", "stuck"),
        ("skip", "0F0", "3F0", "stuck"),
        ("attention", "3F0", "4F0", "stuck"),
        ("braided", "0F1", "3B0", "ok"),
        ("braided", "0F1", "3F0", "note"),
    ],
)
def test_a_swap_in_a_specimen_is_judged(name: str, first: str, second: str, fault: str) -> None:
    assert explore(_with_swap(SPECIMENS[name], first, second)).fault == fault


def _with_swap(play: Play, first: str, second: str) -> Play:
    other = {work(first): work(second), work(second): work(first)}
    new = {place: [other.get(w, w) for w in lane] for place, lane in play.lanes.items()}
    return replace(play, lanes=new)


def test_work_that_feeds_its_own_braid_or_loan_can_never_start() -> None:
    whole = play(ONE_UNIT, World(1, 1, (1,)))
    assert explore(replace(whole, pairs=((work("0F0"), work("0B0")),))).fault == "stuck"
    sliced = play(SLICED, World(2, 2, (2,)))
    assert explore(replace(sliced, loans=((work("0F0"), work("1F0")),))).fault == "stuck"
    assert explore(replace(sliced, loans=((work("0F0.1"), work("1F0")),))).fault == "ok"


def test_notes_hold_work_back_and_must_speak_of_work_that_exists() -> None:
    sliced = play(SLICED, World(2, 2, (2,)))
    assert explore(replace(sliced, after=((work("0F0.1"), work("1F0")),))).fault == "ok"
    assert explore(replace(sliced, after=((work("0F0.1"), work("1F0.1")),))).fault == "stuck"
    assert explore(replace(sliced, after=((work("0F0.1"), work("7F0")),))).fault == "note"


@pytest.mark.parametrize("name", [name for name in SPECIMENS if "algorithm" not in name])
def test_every_order_of_moves_has_the_same_end(name: str) -> None:
    ends, positions = endings(Board(SPECIMENS[name]))
    assert ends == {frozenset()}
    assert positions > len(SPECIMENS[name].places) / 2


def test_every_order_of_moves_gets_stuck_at_the_same_work() -> None:
    broken = play(swapped(SLICED, "1B0", "1B0.1"), World(2, 2, (2,)))
    assert endings(Board(broken))[0] == {explore(broken).works}


CROSSED = """
0 compute: 0F0 0F1 0F2 0B2 0B1 0B0
1 compute: 1F2 1F1 1F0 1B2 1B1 1B0
"""


def test_a_receiver_that_reads_in_reverse_needs_a_slot_for_everything() -> None:
    crossed = play(CROSSED, World(2, 2, (1, 1, 1)))
    assert smallest_slots(crossed) == {(0, 1, "x"): 3, (1, 0, "g"): 1}
    assert gets_stuck(crossed, {(0, 1, "x"): 2, (1, 0, "g"): 1})
    assert parcels(crossed)[1, 0, "g"][0] == (work("1B2"), work("0B2"))


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_every_order_of_moves_and_transfers_has_the_same_end(slots: int) -> None:
    crossed = play(CROSSED, World(2, 2, (1, 1, 1)))
    enough = {(0, 1, "x"): slots, (1, 0, "g"): 1}
    ends, _ = endings(ChannelBoard(crossed, slots=enough))
    assert len(ends) == 1
    assert (ends == {frozenset()}) == (slots == 3) == (not gets_stuck(crossed, enough))

"""Beats travel through a store, and silence adds up in the listener's own rounds."""

import pytest
from torch.distributed import HashStore

from penstock.run.watchdog.heartbeat import WATCHED, Beat, Ear, hear, send
from penstock.run.watchdog.position import Position, Tracker

pytestmark = pytest.mark.torch


def test_a_beat_comes_back_as_it_was_sent() -> None:
    store = HashStore()
    beat = Beat.of(Position("waits for x from rank 1", "1F0", "x", 1, files=True), 3, 2.5)
    send(store, 4, beat)
    assert hear(store, [4]) == {4: beat}


def test_the_last_beat_of_a_rank_that_has_left_stands_in_a_sentence() -> None:
    left = Beat(9, text="has done its part", left=True)
    assert f"last seen {left.place}" == "last seen when it has done its part"


def test_the_first_beat_of_a_rank_stands_in_a_sentence() -> None:
    first = Beat.of(Tracker().position(), 1, 0.0)
    assert f"last seen {first.place}" == "last seen before the first step, while it starts"


def test_ranks_that_have_never_beaten_are_not_waited_for() -> None:
    assert hear(HashStore(), [0, 1]) == {}


def test_silence_adds_up_until_the_next_beat() -> None:
    store, ear = HashStore(), Ear(0, 2)
    send(store, 1, Beat(1))
    for expected in (0.0, 0.5, 1.0):
        ear.listen(store, 0.5)
        assert ear.silence[1] == expected
    send(store, 1, Beat(2))
    ear.listen(store, 0.5)
    assert ear.silence[1] == 0.0


def test_a_rank_that_has_left_is_not_silent() -> None:
    store, ear = HashStore(), Ear(0, 2)
    send(store, 1, Beat(9, left=True))
    for _ in range(3):
        ear.listen(store, 10.0)
    assert ear.silence[1] == 0.0


def test_a_rank_listens_to_the_next_ones_around_the_ring() -> None:
    assert Ear(2, 4).others == [3, 0, 1]
    assert Ear(0, 1).others == []
    assert len(Ear(5, 512).others) == WATCHED


@pytest.mark.parametrize("world", [2, 9, 40])
def test_every_rank_is_listened_to(world: int) -> None:
    heard = {other for rank in range(world) for other in Ear(rank, world).others}
    assert heard == set(range(world))

"""Who is to blame when nobody moves: the silent one, or the end of a chain of waiting ranks."""

import pytest

from penstock.run.alarm import Patience, silent, stuck
from penstock.run.beat import Beat, Ear

pytestmark = pytest.mark.torch

PATIENCE = Patience(silent=5.0, stuck=60.0)


def waits(rank: int, still: float = 90.0) -> Beat:
    return Beat(7, still, f"waits for the input from rank {rank}", "1F0", "the input", rank)


def runs(still: float = 90.0) -> Beat:
    return Beat(7, still, "runs 2F3.1", "2F3.1 (op 17 of 40 of step 12)")


def ear(**silence: float) -> Ear:
    """Rank 0 of 3, with what it has heard of the others."""
    listener = Ear(0, 3)
    listener.beats = {1: waits(2), 2: runs()}
    listener.silence = {1: silence.get("one", 0.0), 2: silence.get("two", 0.0)}
    return listener


def test_a_silent_rank_is_named_with_its_op_and_who_waits_for_it() -> None:
    listener = ear(two=5.5)
    assert silent(listener, {0: waits(1), **listener.beats}, PATIENCE) == (
        "rank 2 is silent since 5.5 s, last heard at 2F3.1 (op 17 of 40 of step 12); "
        "rank 1 waits for the input from it"
    )


def test_the_longest_silence_is_the_one_that_counts() -> None:
    assert silent(ear(one=6.0, two=7.0), {}, PATIENCE).startswith("rank 2 is silent since 7.0 s")


def test_a_rank_that_was_never_heard_is_said_to_be_so() -> None:
    listener = ear(two=6.0)
    del listener.beats[2]
    assert silent(listener, {}, PATIENCE) == (
        "rank 2 is silent since 6.0 s and has never given a sign of life"
    )


def test_there_is_no_alarm_before_patience_is_over() -> None:
    assert silent(ear(one=4.9, two=4.9), {}, PATIENCE) == ""


def test_the_end_of_the_chain_is_stuck() -> None:
    beats = {0: waits(1), 1: waits(2), 2: runs()}
    assert stuck(beats, PATIENCE) == (
        "rank 2 is stuck since 90.0 s: it runs 2F3.1, at 2F3.1 (op 17 of 40 of step 12); "
        "rank 1 waits for the input from it"
    )


def test_a_circle_of_waiting_ranks_is_stuck() -> None:
    assert "is stuck since 90.0 s: it waits for the input from rank" in stuck(
        {0: waits(1), 1: waits(2), 2: waits(1)}, PATIENCE
    )


@pytest.mark.parametrize(
    "beats",
    [
        {0: waits(1), 1: runs(still=1.0), 2: runs()},
        {0: waits(1), 1: waits(2), 2: runs(still=1.0)},
        {0: runs(), 1: runs(), 2: runs()},
    ],
    ids=["it moves", "the end of the chain moves", "nobody waits"],
)
def test_a_long_op_is_no_alarm_while_something_moves_or_nobody_waits(
    beats: dict[int, Beat],
) -> None:
    assert stuck(beats, PATIENCE) == ""

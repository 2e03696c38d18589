"""Who is to blame when nobody moves: the silent one, or the end of a chain of waiting ranks."""

import pytest
from torch.distributed import HashStore

from penstock.run.process.neighbour import GONE, STOPPED, THERE, UNKNOWN
from penstock.run.watchdog import alarm
from penstock.run.watchdog.alarm import Patience, silence_limit, silent, stuck
from penstock.run.watchdog.heartbeat import REGULAR, Beat, Ear, send
from penstock.run.watchdog.position import EVERYBODY

pytestmark = pytest.mark.torch

PATIENCE = Patience(silent=5.0, stuck=60.0, frozen=3.5, meeting=300.0)


def waits(rank: int, still: float = 90.0) -> Beat:
    return Beat(7, still, f"waits for the input from rank {rank}", "1F0", "the input", rank)


def runs(still: float = 90.0) -> Beat:
    return Beat(7, still, "runs 2F3.1", "2F3.1 (op 17 of 40 of step 12)")


def together(what: str = "end the step", still: float = 90.0) -> Beat:
    text = f"waits for all ranks to {what}"
    return Beat(7, still, text, f"step 12, while it {text}", what, EVERYBODY)


def does(text: str = "evaluates", still: float = 90.0) -> Beat:
    return Beat(7, still, text, f"step 12, while it {text}")


def files(beat: Beat) -> Beat:
    return beat._replace(files=True)


def ear(**silence: float) -> Ear:
    """Rank 0 of 3, with what it has heard of the others."""
    listener = Ear(0, 3)
    listener.beats = {1: waits(2), 2: runs()}
    listener.silence = {1: silence.get("one", 0.0), 2: silence.get("two", 0.0)}
    return listener


def test_a_silent_rank_is_named_with_its_op_and_who_waits_for_it() -> None:
    listener = ear(two=5.5)
    assert silent(listener, {0: waits(1), **listener.beats}, PATIENCE) == (
        "rank 2 has been silent for 5.5 s, last seen at 2F3.1 (op 17 of 40 of step 12); "
        "rank 1 waits for the input from it"
    )


def test_the_longest_silence_is_the_one_that_counts() -> None:
    assert silent(ear(one=6.0, two=7.0), {}, PATIENCE).startswith(
        "rank 2 has been silent for 7.0 s"
    )


def test_a_rank_that_was_never_heard_may_still_come() -> None:
    listener = ear(two=299.0)
    del listener.beats[2]
    assert silent(listener, {}, PATIENCE) == ""
    listener.silence[2] = 300.0
    assert silent(listener, {}, PATIENCE) == (
        "rank 2 has been silent for 300.0 s and has never sent a heartbeat"
    )


@pytest.mark.parametrize(("state", "limit"), [(STOPPED, 3.5), (GONE, 3.5), (THERE, 5.0)])
def test_a_neighbour_is_given_up_early_only_if_it_is_stopped_or_gone(
    monkeypatch: pytest.MonkeyPatch, state: str, limit: float
) -> None:
    monkeypatch.setattr(alarm, "state_of", lambda process: state)
    how = "silent" if state == THERE else state
    assert silent(ear(two=limit - 0.1), {}, PATIENCE) == ""
    assert silent(ear(two=limit), {}, PATIENCE).startswith(f"rank 2 has been {how} for {limit} s")


def test_a_rank_elsewhere_is_given_up_early_only_if_its_beats_were_regular(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alarm, "state_of", lambda process: UNKNOWN)
    patience, store, listener = Patience(silent=60.0, frozen=3.5), HashStore(), Ear(0, 2)

    def beats(numbers: range, rounds: int, *, steady: bool) -> None:
        for number in numbers:
            send(store, 1, Beat(number, steady=steady))
            for _ in range(rounds):
                listener.listen(store, 0.5)

    beats(range(1, 50), 1, steady=False)
    assert silence_limit(listener, 1, patience) == 60.0
    beats(range(50, 50 + REGULAR), 2, steady=True)
    assert silence_limit(listener, 1, patience) == 60.0
    beats(range(100, 102), 2, steady=True)
    assert silence_limit(listener, 1, patience) == 3.5
    beats(range(200, 203), 9, steady=True)
    assert silence_limit(listener, 1, patience) == 3 * 4.0
    beats(range(300, 301), 1, steady=False)
    assert silence_limit(listener, 1, patience) == 60.0


def test_there_is_no_alarm_before_patience_is_over() -> None:
    assert silent(ear(one=4.9, two=4.9), {}, PATIENCE) == ""


def test_the_end_of_the_chain_is_stuck() -> None:
    beats = {0: waits(1), 1: waits(2), 2: runs()}
    assert stuck(beats, PATIENCE) == (
        "rank 2 has been stuck for 90.0 s: it runs 2F3.1, at 2F3.1 (op 17 of 40 of step 12); "
        "rank 1 waits for the input from it"
    )


def test_a_circle_of_waiting_ranks_is_stuck() -> None:
    assert "has been stuck for 90.0 s: it waits for the input from rank" in stuck(
        {0: waits(1), 1: waits(2), 2: waits(1)}, PATIENCE
    )


@pytest.mark.parametrize(
    "beats",
    [
        {0: waits(1), 1: runs(still=1.0), 2: runs()},
        {0: waits(1), 1: waits(2), 2: runs(still=1.0)},
        {0: runs(), 1: runs(), 2: runs()},
        {0: together(), 1: together(), 2: does(still=59.0)},
        {0: together(still=59.0), 1: together(still=59.0), 2: does(still=59.5)},
        {0: together(still=59.0), 1: does(), 2: does()},
        {0: waits(1), 1: together(), 2: does(still=59.0)},
        {0: together(), 1: together(), 2: together(still=59.0)},
        {0: together(), 1: Beat(9, left=True), 2: does(still=1.0)},
    ],
    ids=[
        "it moves",
        "the end of the chain moves",
        "nobody waits",
        "all wait for one that moves",
        "all within patience",
        "who waits has only begun to",
        "a chain ends in what all wait for, and one moves",
        "all have come, the last a moment ago",
        "one has left",
    ],
)
def test_a_long_op_is_no_alarm_while_something_moves_or_nobody_waits(
    beats: dict[int, Beat],
) -> None:
    assert stuck(beats, PATIENCE) == ""


def test_who_does_not_come_to_what_all_do_together_is_stuck() -> None:
    beats = {0: together(), 1: together(), 2: does(), 3: together("count their labels")}
    assert stuck(beats, PATIENCE) == (
        "rank 2 has been stuck for 90.0 s, at step 12, while it evaluates; "
        "ranks 0-1 wait for all ranks to end the step; "
        "rank 3 waits for all ranks to count their labels"
    )


def test_a_chain_goes_on_through_what_all_do_together() -> None:
    """Replica 0 is ranks 0 and 1, replica 1 ranks 2 and 3: they meet in collectives alone."""
    beats = {
        0: waits(1),
        1: together("count their labels"),
        2: waits(3),
        3: does("reads its batch"),
    }
    assert stuck(beats, PATIENCE) == (
        "rank 3 has been stuck for 90.0 s, at step 12, while it reads its batch; "
        "rank 2 waits for the input from it; rank 1 waits for all ranks to count their labels"
    )


def test_the_other_replica_is_blocked_by_the_one_at_the_end_of_the_chain() -> None:
    beats = {0: waits(1), 1: runs(), 2: together(), 3: together()}
    assert stuck(beats, PATIENCE).startswith(
        "rank 1 has been stuck for 90.0 s: it runs 2F3.1, at 2F3.1 (op 17 of 40 of step 12); "
        "rank 0 waits for the input from it; ranks 2-3 wait for all ranks to end the step"
    )


def test_of_several_that_do_not_come_the_one_that_rests_longest_is_named() -> None:
    beats = {0: together(), 1: does(still=70.0), 2: does(still=95.0), 3: does(still=1.0)}
    assert stuck(beats, PATIENCE).startswith("rank 2 has been stuck for 95.0 s")


def test_who_has_waited_for_a_moment_only_is_listed_too() -> None:
    beats = {0: together(), 1: does(), 2: together(still=1.0)}
    assert stuck(beats, PATIENCE).endswith("ranks 0, 2 wait for all ranks to end the step")


def test_what_happens_before_the_first_step_is_said_without_a_number() -> None:
    place = "before the first step, while it builds its stages"
    beats = {0: together(), 1: Beat(7, 61.0, "builds its stages", place)}
    assert stuck(beats, PATIENCE).startswith(
        f"rank 1 has been stuck for 61.0 s, {place}; rank 0 waits"
    )


@pytest.mark.parametrize(
    "beats",
    [
        {0: together("tokenise the text"), 1: files(does("opens the data", 9000.0))},
        {0: waits(1), 1: files(does("reads the weights"))},
        {0: files(together("write the checkpoint")), 1: files(together("write the checkpoint"))},
        {0: together(), 1: files(together("write the checkpoint"))},
    ],
    ids=["opens data", "at the end of a chain", "all write", "one writes"],
)
def test_files_are_read_and_written_for_as_long_as_it_takes(beats: dict[int, Beat]) -> None:
    assert stuck(beats, PATIENCE) == ""


def test_who_keeps_others_from_writing_together_is_stuck() -> None:
    beats = {0: does("writes its records"), 1: files(together("write the checkpoint"))}
    assert stuck(beats, PATIENCE) == (
        "rank 0 has been stuck for 90.0 s, at step 12, while it writes its records; "
        "rank 1 waits for all ranks to write the checkpoint"
    )


def test_ranks_that_all_wait_with_nobody_left_to_wait_for_are_named_together() -> None:
    beats = {0: together(), 1: together(still=80.0), 2: waits(0), 3: Beat(9, left=True)}
    assert stuck(beats, PATIENCE) == (
        "all ranks have waited for each other for 80.0 s: "
        "ranks 0-1 wait for all ranks to end the step; rank 2 waits for the input from rank 0"
    )


def test_a_silent_rank_is_named_with_those_that_wait_for_all() -> None:
    listener = ear(two=5.5)
    assert silent(listener, {0: together(), **listener.beats}, PATIENCE).endswith(
        "rank 1 waits for the input from it; rank 0 waits for all ranks to end the step"
    )

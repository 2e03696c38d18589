"""Where a rank is: one assignment for the main thread, words and a picture for whoever asks."""

from timeit import timeit

import pytest

from penstock.lower import lower
from penstock.run.program.calls import Lane
from penstock.run.program.compile import compile_lane
from penstock.run.watchdog.position import EVERYBODY, NOBODY, Phase, Position, Tracker
from penstock.schedules import build

pytestmark = pytest.mark.torch


@pytest.fixture
def lane() -> Lane:
    return compile_lane(lower(build("seq1f1b", devices=3, microbatches=2, slices=2)), 1)


@pytest.fixture
def tracker(lane: Lane) -> Tracker:
    follower = Tracker()
    follower.step = 12
    follower.follow(lane, lambda device: device + 3)
    return follower


def test_outside_of_a_lane_it_says_what_is_done() -> None:
    tracker = Tracker()
    tracker.step, tracker.at = 3, "saves"
    assert tracker.position() == Position("saves", "step 3, while it saves")
    assert tracker.picture() == ""


def test_what_is_done_before_the_first_step_is_said_to_be_so() -> None:
    tracker = Tracker()
    tracker.handles_files("opens the data")
    place = "before the first step, while it opens the data"
    assert tracker.position() == Position("opens the data", place, files=True)


def test_what_all_do_together_is_waited_for_from_everybody_and_then_it_goes_on() -> None:
    tracker = Tracker()
    tracker.step = 3
    tracker.at = "ends its step"
    text = "waits for all ranks to add up their gradients"
    with tracker.gathers("add up their gradients"):
        assert tracker.position() == Position(
            text, f"step 3, while it {text}", "add up their gradients", EVERYBODY, steady=True
        )
        assert tracker.picture() == ""
    assert tracker.position() == Position("ends its step", "step 3, while it ends its step")


def test_a_copy_that_is_waited_for_is_nobody_elses(tracker: Tracker, lane: Lane) -> None:
    tracker.copies(lane.calls[2])
    text = f"waits for a copy to or from the host before {lane.calls[2].op}"
    assert tracker.position() == Position(text, f"step 12, while it {text}")
    assert tracker.position().owes == NOBODY


def test_what_all_do_with_files_is_waited_for_as_long_as_it_takes() -> None:
    tracker = Tracker()
    with tracker.gathers_files("load the checkpoint"):
        position = tracker.position()
    assert (position.owes, position.files) == (EVERYBODY, True)


def test_a_place_that_is_come_to_again_is_another_one(tracker: Tracker, lane: Lane) -> None:
    """Its seconds count from there: two short stays are not a long one."""
    tracker.runs(lane.calls[0])
    for before in ("evaluates", Phase("evaluates"), tracker.at):
        tracker.at = before
        words = tracker.position()
        with tracker.gathers("count their labels"):
            pass
        assert tracker.at is not before
        assert tracker.position() == words


def test_an_error_is_reported_from_where_it_happened() -> None:
    tracker = Tracker()
    with pytest.raises(ValueError, match="lost"), tracker.gathers("end the step"):
        raise ValueError("lost")
    assert tracker.position().text == "waits for all ranks to end the step"


def test_after_its_last_op_a_rank_waits_for_others_to_take_what_it_has_sent(
    tracker: Tracker, lane: Lane
) -> None:
    tracker.ran(lane.calls[-2])
    assert tracker.position().owes == NOBODY
    tracker.ran(lane.calls[-1])
    assert tracker.position().owes == EVERYBODY
    assert tracker.position().text == "waits for all ranks to take what it has sent"


def test_a_running_op_is_named_with_its_place(tracker: Tracker, lane: Lane) -> None:
    tracker.runs(lane.calls[1])
    where = "1F0.1 (op 2 of 8 of step 12)"
    assert tracker.position() == Position("runs 1F0.1", where, "", NOBODY, steady=True)


def test_a_waiting_op_names_what_it_waits_for_and_from_which_rank(
    tracker: Tracker, lane: Lane
) -> None:
    step = lane.calls[1]
    tracker.waits(step, step.waits[0])
    awaited = "the input of stage 1, microbatch 0, slice 1"
    assert tracker.position() == Position(
        f"waits for {awaited} from rank 3",
        "1F0.1 (op 2 of 8 of step 12)",
        awaited,
        owes=3,
        steady=True,
    )


def test_the_picture_points_at_the_op(tracker: Tracker, lane: Lane) -> None:
    tracker.runs(lane.calls[2])
    line, arrow = tracker.picture().splitlines()
    assert line.startswith("device 1: 1F0 1F0.1 ")
    assert line[arrow.index("^") : arrow.rindex("^") + 1] == str(lane.calls[2].op)


def test_it_costs_the_main_thread_less_than_a_microsecond(tracker: Tracker, lane: Lane) -> None:
    step = lane.calls[1]
    post = step.waits[0]
    best = min(timeit(lambda: tracker.waits(step, post), number=10_000) for _ in range(20))
    assert best / 10_000 < 1e-6

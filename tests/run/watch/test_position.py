"""Where a rank is: one assignment for the main thread, words and a picture for whoever asks."""

from timeit import timeit

import pytest

from penstock.lower import lower
from penstock.run.compiled import Lane, compile_lane
from penstock.run.position import NOBODY, Position, Tracker
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
    tracker.at = "saves"
    assert tracker.position() == Position("saves", "step 0: saves")
    assert tracker.picture() == ""


def test_a_running_op_is_named_with_its_place(tracker: Tracker, lane: Lane) -> None:
    tracker.runs(lane.steps[1])
    assert tracker.position() == Position("runs 1F0.1", "1F0.1 (op 2 of 8 of step 12)", "", NOBODY)


def test_a_waiting_op_names_what_it_waits_for_and_from_which_rank(
    tracker: Tracker, lane: Lane
) -> None:
    step = lane.steps[1]
    tracker.waits(step, step.waits[0])
    awaited = "the input of stage 1, microbatch 0, slice 1"
    assert tracker.position() == Position(
        f"waits for {awaited} from rank 3", "1F0.1 (op 2 of 8 of step 12)", awaited, 3
    )


def test_the_picture_points_at_the_op(tracker: Tracker, lane: Lane) -> None:
    tracker.runs(lane.steps[2])
    line, arrow = tracker.picture().splitlines()
    assert line.startswith("device 1: 1F0 1F0.1 ")
    assert line[arrow.index("^") : arrow.rindex("^") + 1] == str(lane.steps[2].op)


def test_it_costs_the_main_thread_less_than_a_microsecond(tracker: Tracker, lane: Lane) -> None:
    step = lane.steps[1]
    post = step.waits[0]
    best = min(timeit(lambda: tracker.waits(step, post), number=10_000) for _ in range(20))
    assert best / 10_000 < 1e-6

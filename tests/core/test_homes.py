"""Ops of a whole stage: gathers before the first use, reductions and updates after the last."""

from fractions import Fraction

from penstock.check import check
from penstock.core.gangs import helping_rows
from penstock.core.homes import home_edges, weight_homes
from penstock.core.ops import Op, parse_op
from penstock.core.schedule import After, Schedule
from penstock.core.shape import Shape
from penstock.core.transfers import moves_of
from penstock.cost.model import UnitCost
from penstock.run.program.step_end import end_step
from penstock.schedules import build
from penstock.sim import simulate

TIMES = {"G": Fraction(2), "Z": Fraction(3), "U": Fraction(1)}


def lane(text: str) -> list[Op]:
    return [parse_op(word) for word in text.split()]


def starts(schedule: Schedule, **times: Fraction) -> dict[str, Fraction]:
    cost = UnitCost(times={**TIMES, **times})
    return {str(span.op): span.start for span in simulate(schedule, cost).spans()}


def sharded(*after: After) -> Schedule:
    """One device, two microbatches; weights are gathered twice and gradients reduced once."""
    return Schedule.from_lanes(
        "sharded",
        Shape(1, 1, (1, 1)),
        [
            (0, "compute", lane("0F0 0F1 0B0 0B1 0U0")),
            (0, "collective", lane("0G0 0G1 0Z0")),
        ],
        after=after,
    )


def test_the_first_use_waits_for_the_first_gather() -> None:
    assert starts(sharded())["0F0"] == 2


def test_a_reduction_waits_for_the_last_gradient_and_an_update_for_the_reduction() -> None:
    start = starts(sharded())
    assert start["0Z0"] == 2 + 2 + 4  # the gather, two forwards, two backwards
    assert start["0U0"] == start["0Z0"] + 3


def test_later_gathers_are_ordered_by_after() -> None:
    late = After(parse_op("0G1"), parse_op("0F1"))
    used = After(parse_op("0B0"), parse_op("0G1"))
    assert starts(sharded(late, used))["0B0"] == 2 + 2 + 2


def test_without_a_reduction_the_update_waits_for_the_last_gradient() -> None:
    lanes = [(0, "compute", lane("0F0 0B0")), (0, "copy", lane("0U0"))]
    schedule = Schedule.from_lanes("plain", Shape(1, 1, (1,)), lanes)
    assert starts(schedule)["0U0"] == 3


def test_an_update_in_front_of_its_last_gradient_is_refused() -> None:
    lanes = [(0, "compute", lane("0F0 0F1 0B0 0U0 0B1"))]
    findings = check(Schedule.from_lanes("hasty", Shape(1, 1, (1, 1)), lanes)).findings
    assert findings[0].ops == (parse_op("0U0"), parse_op("0B1"))


def ended(ties: tuple[tuple[int, int], ...] = ()) -> Schedule:
    """Two devices that end their step with reductions, norms and updates."""
    shape = Shape(2, 2, (1,), ties=ties)
    lanes = [
        (device, stream, lane(text.replace("s", str(device))))
        for device in (0, 1)
        for stream, text in (("compute", "sF0 sB0 sV0 sU0"), ("collective", "sZ0"))
    ]
    return Schedule.from_lanes("ended", shape, lanes)


def test_an_update_waits_for_the_norms_of_all_stages() -> None:
    start = starts(ended(), V=Fraction(1), Z=Fraction(0))
    assert start["1V0"] == 1 + 1 + 2  # both forwards, the backward of stage 1
    assert start["0V0"] == start["1V0"] + 2
    assert start["1U0"] == start["0U0"] == start["0V0"] + 1


def test_the_norm_of_a_tied_stage_waits_for_the_gradients_of_both() -> None:
    start = starts(ended(ties=((0, 1),)), Z=Fraction(3))
    assert start["0Z0"] == 6
    assert start["1V0"] == start["0V0"] == start["0Z0"] + 3


def test_what_is_added_up_is_not_sent_as_messages() -> None:
    moves = moves_of(ended(ties=((0, 1),)))
    assert {moves.payload(move) for move in range(len(moves.writer))} == {"x", "g"}


def test_homes_follow_from_lanes() -> None:
    assert weight_homes(build("interleaved", devices=2, microbatches=2)) == {
        0: [0],
        1: [1],
        2: [0],
        3: [1],
    }


def test_members_of_a_gang_away_from_home_do_not_wait_for_its_weights() -> None:
    order = build("sppo-msp", devices=4, microbatches=8)
    assert order.gangs
    ended = end_step(order, reduced=False)
    assert check(ended).proven
    edges, table = home_edges(ended), ended.table
    assert {table.op(row).kind for row in edges[:, 0].tolist()} == {"U", "V"}
    assert not helping_rows(ended)[edges[:, 0]].any()

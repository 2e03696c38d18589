"""The optima of zero-bubble.md's and optpipe.md's sections, and what the solver promises."""

import sys
from fractions import Fraction

import pytest

from penstock.check import check
from penstock.core.ops import Op, parse_op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.search.exact.exact import MAKESPAN, SPAN, Solution, solve
from penstock.search.exact.model import Model
from penstock.search.joint.net import Net
from penstock.sim import simulate
from penstock.transform import weigh_slices
from penstock.transform.offload import Window, add_copies
from search.proof import proven_peaks, verified

pytest.importorskip("ortools", reason="needs the extra `solve`")

HALF = Fraction(1, 2)


def one_by_one(p: int, m: int) -> Schedule:
    """The order that fits into the least memory: nothing is left to a good start."""
    lanes = [[(kind, r, mb, 0) for mb in range(m) for kind in "FIW"] for r in range(p)]
    return Schedule.of("one by one", Shape.even(p, m), lanes)


def copies_take(time: Fraction | int) -> UnitCost:
    return UnitCost(times={"O": Fraction(time), "L": Fraction(time)})


def every_forward(schedule: Schedule) -> dict[Op, Fraction]:
    return {op: Fraction(1) for op in schedule.table.ops() if op.kind == "F"}


def best(p: int, m: int, limit: int) -> Solution:
    """The shortest longest device without offloads, at unit times and sizes."""
    return solve(one_by_one(p, m), UnitCost(), goal=SPAN, limit=Fraction(limit))


def best_with_offload(p: int, m: int, limit: int, copy: Fraction | int) -> Solution:
    start = one_by_one(p, m)
    offloads = every_forward(start)
    cost = copies_take(copy)
    found = solve(start, cost, goal=SPAN, limit=Fraction(limit), offloads=offloads)
    assert found.value == verified(found.schedule, cost, limit).span
    return found


WITHOUT = {
    (2, 4, 1): 20,
    (2, 4, 2): 13,
    (2, 4, 3): 12,
    (3, 4, 1): 28,
    (3, 4, 2): 17,
    (3, 4, 3): 14,
    (3, 4, 5): 13,
    (4, 4, 2): 21,
    (4, 4, 3): 18,
}
"""Zero bubble (arXiv:2401.10241), integer program: devices, microbatches, limit -> span."""


@pytest.mark.parametrize(("p", "m", "limit"), WITHOUT)
def test_section_5_optima_of_the_zero_bubble_program(p: int, m: int, limit: int) -> None:
    found = best(p, m, limit)
    assert (found.value, found.optimal) == (WITHOUT[p, m, limit], True)
    assert verified(found.schedule, UnitCost(), limit).span == found.value


WITH = {
    (2, 4, 1, Fraction(1)): 20,
    (2, 4, 2, Fraction(1)): 13,
    (2, 4, 3, Fraction(1)): 12,
    (3, 4, 1, HALF): 18,
    (3, 4, 2, Fraction(1)): 15,
    (3, 4, 2, HALF): 15,
    (3, 4, 3, Fraction(1)): 14,
    (4, 4, 2, HALF): 17,
    (4, 4, 3, HALF): 16,
}
"""OptPipe, worked checks: devices, microbatches, limit, time of a copy -> span."""


@pytest.mark.long
@pytest.mark.parametrize(("p", "m", "limit", "copy"), WITH)
def test_section_6_optima_with_offload(p: int, m: int, limit: int, copy: Fraction) -> None:
    found = best_with_offload(p, m, limit, copy)
    assert (found.value, found.optimal) == (WITH[p, m, limit, copy], True)


def test_section_4_the_model_has_a_start_for_every_op_and_a_choice_for_every_activation() -> None:
    """An integer program with a choice for every pair of ops has 585 variables for this step."""
    start = one_by_one(4, 4)
    net = Net.of(start, copies_take(HALF), every_forward(start))
    model = Model(net, {row: Window(0, 100) for row in range(len(start.table))})
    choices = {id(choice) for choice in model.made.values()}
    assert (len(model.start), len(choices)) == ((3 + 2) * 4 * 4, 4 * 4)


def test_section_6_the_worked_schedule_is_one_of_the_optima() -> None:
    text = {
        0: "F0@0 F1@1 O0@1 F2@2 O2@3 L0@4 I0@5 W0@6 F3@7 I1@8 W1@9 L2@10 I2@11 W2@12 I3@13 W3@14",
        1: "F0@1 F1@2 I0@4 W0@5 F2@6 I1@7 O2@7 W1@8 F3@9 L2@9 I2@10 I3@12 W2@14 W3@15",
        2: "F0@2 I0@3 W0@4 F1@5 I1@6 W1@7 F2@8 I2@9 F3@10 I3@11 W2@12 W3@13",
    }
    windows: dict[Op, Window] = {}
    for device, words in text.items():
        for word in words.split():
            op, _, start = word.partition("@")
            windows[parse_op(f"{device}{op}")] = Window(int(start), int(start) + 1)
    lanes = [[op for op in windows if op.stage == r and op.kind in "FIW"] for r in range(3)]
    schedule = add_copies(Schedule.of("worked", Shape.even(3, 4), lanes), windows)
    timeline = verified(schedule, copies_take(1), 2)
    assert timeline.span == best_with_offload(3, 4, 2, 1).value == 15
    assert proven_peaks(schedule) == [2, 2, 2]


@pytest.mark.parametrize(("p", "m"), [(2, 3), (2, 5), (3, 5)])
def test_section_7_without_offload_the_optima_are_those_of_zb_h1_and_zb_h2(p: int, m: int) -> None:
    assert best(p, m, limit=p).value == 3 * m + p - 1
    assert best(p, m, limit=2 * p - 1).value == 3 * m


@pytest.mark.long
@pytest.mark.parametrize(("p", "m"), [(2, 4), (3, 3)])
def test_section_7_memory_and_fast_copies_never_hurt(p: int, m: int) -> None:
    times = (HALF, Fraction(1), Fraction(2))
    limits = range(1, 2 * p)
    spans = {(n, t): best_with_offload(p, m, n, t) for n in limits for t in times}
    for limit in limits:
        row = [spans[limit, time].value for time in times]
        assert row == sorted(row)
        assert row[-1] <= best(p, m, limit).value
    for time in times:
        column = [spans[limit, time].value for limit in limits]
        assert column == sorted(column, reverse=True)
        assert "O" not in spans[2 * p - 1, time].schedule.table.kinds


def test_both_goals_are_met_in_their_own_way() -> None:
    start = one_by_one(2, 4)
    by_span = solve(start, UnitCost(), goal=SPAN, limit=Fraction(3))
    by_makespan = solve(start, UnitCost(), goal=MAKESPAN, limit=Fraction(3))
    assert (by_span.value, simulate(by_span.schedule).makespan) == (12, 13)
    assert by_makespan.value == simulate(by_makespan.schedule).makespan == 13


def test_gradients_are_added_in_the_order_of_one_process() -> None:
    assert check(best_with_offload(4, 4, 2, HALF).schedule).accumulation == "ascending"


def test_a_result_repeats() -> None:
    first, second = (best_with_offload(3, 4, 2, 1).schedule for _ in range(2))
    assert first == second


def test_a_good_start_stays_when_the_effort_is_too_small() -> None:
    start = build("zb-h1", devices=4, microbatches=8)
    found = solve(start, UnitCost(), goal=SPAN, limit=Fraction(4), effort=1e-4)
    assert found.schedule is start
    assert found.value == 27
    assert found.bound == 24
    assert not found.optimal


def test_what_cannot_be_shorter_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    start = build("zb-h2", devices=3, microbatches=5)
    assert solve(start, UnitCost(), goal=SPAN) == Solution(start, Fraction(15), Fraction(15))


def test_without_the_solver_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(ShapeError, match="OR-Tools") as caught:
        best(2, 2, 2)
    assert "penstock[solve]" in caught.value.hint


@pytest.mark.long
@pytest.mark.parametrize("groups", [[(0, 1)], [(0, 1, 2)], [(0,), (1, 2)]])
def test_devices_that_share_a_channel_copy_one_at_a_time(groups: list[tuple[int, ...]]) -> None:
    start, cost = one_by_one(3, 4), copies_take(1)
    offloads = every_forward(start)
    alone = solve(start, cost, goal=SPAN, limit=Fraction(1), offloads=offloads, effort=2)
    shared = solve(
        start, cost, goal=SPAN, limit=Fraction(1), offloads=offloads, channels=groups, effort=2
    )
    timeline = verified(shared.schedule, cost, 1, groups)
    assert timeline.span == shared.value >= alone.value
    assert "O" in shared.schedule.table.kinds


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("zb-v", {"devices": 2, "microbatches": 3}),
        ("interleaved-zb", {"devices": 2, "microbatches": 2, "chunks": 2}),
        ("seq1f1b", {"devices": 2, "microbatches": 2, "slices": 2}),
        ("gpipe", {"devices": 3, "microbatches": 3}),
    ],
)
def test_any_placement_and_any_slices_can_be_searched(name: str, request_: dict[str, int]) -> None:
    start = build(name, **request_)
    limit = max(simulate(start).peak)
    found = solve(start, UnitCost(), limit=limit, effort=2)
    assert found.bound <= found.value <= simulate(start).makespan
    assert found.value == verified(found.schedule, UnitCost(), limit).makespan


def test_microbatches_of_different_length_may_change_places() -> None:
    shares = [[Fraction(1)], [Fraction(3)], [Fraction(1)]]
    start = weigh_slices(build("zb-h1", devices=2, microbatches=3), shares)
    found = solve(start, UnitCost(), goal=SPAN, effort=5)
    assert found.optimal
    assert found.value == verified(found.schedule, UnitCost(), 99).span < simulate(start).span


def test_latency_between_devices_is_part_of_the_problem() -> None:
    start, cost = one_by_one(2, 3), UnitCost(hop=HALF)
    found = solve(start, cost, limit=Fraction(2))
    assert found.optimal
    # The first gradient is back at 4; W0 has made room for F2 at 6; I2 is back 4 later, then W2.
    assert found.value == simulate(found.schedule, cost).makespan == 12


def test_partial_offloads_take_part_of_the_time_and_free_part_of_the_memory() -> None:
    start, cost = one_by_one(3, 4), copies_take(1)
    offloads = dict.fromkeys(every_forward(start), HALF)
    found = solve(start, cost, goal=SPAN, limit=Fraction(2), offloads=offloads)
    verified(found.schedule, cost, 2)
    assert found.optimal
    assert found.value == Fraction(31, 2)  # 17 without, 15 with whole offloads
    assert {share for _, share in found.schedule.shares} == {HALF}


def test_a_start_above_the_limit_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"holds 4 on a device, above the limit of 3"):
        solve(build("zb-h1", devices=4, microbatches=8), UnitCost(), limit=Fraction(3))


def test_ops_that_run_together_are_not_taken_apart() -> None:
    with pytest.raises(ShapeError, match="run together"):
        solve(build("dualpipev", devices=2, microbatches=4), UnitCost())

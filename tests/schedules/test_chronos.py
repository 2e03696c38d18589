from fractions import Fraction

import pytest

from loops import each_case
from penstock.check import check
from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.schedules import Case, build
from penstock.schedules.generators.grid import SlotGrid, grid_lanes
from penstock.sim import simulate
from penstock.sim.timeline import Timeline
from penstock.transform import recompute_stages
from schedules.picture import chunk_units, lanes, picture

Times = tuple[int, int]
"""Forward and backward of one stage."""
USUAL = (1, 2)


def prices(v: int, times: Times) -> dict[str, Fraction]:
    """So that a stage's forward and backward take that long: W takes nothing."""
    forward, backward = times
    return {"F": Fraction(v * forward), "I": Fraction(v * backward), "W": Fraction(0)}


def chronos(p: int, v: int, m: int, times: Times = USUAL) -> Schedule:
    return build("chronos", devices=p, microbatches=m, chunks=v, prices=prices(v, times))


def priced(p: int, v: int, m: int, times: Times = USUAL) -> Timeline:
    """Times and peaks count what one stage takes and holds."""
    return simulate(chronos(p, v, m, times), UnitCost(times=prices(v, times)))


def grid(p: int, v: int, times: Times = USUAL) -> SlotGrid:
    return SlotGrid.of(Case(p, 1, v).at(prices(v, times)))


def test_the_worked_example() -> None:
    """Section 3; its prime is the small letter here, and its microbatches count from 1."""
    assert lanes(chronos(4, 2, 8)) == picture("""
        0 F0 F1 f0 F2 f1 F3 b0 f2 F4 b1 f3 B0 F5 b2 f4 B1 F6 b3 f5 B2 F7 b4 f6 B3 b5 f7 B4 b6 B5
          b7 B6 B7
        1 F0 F1 f0 F2 f1 b0 F3 f2 b1 F4 B0 f3 b2 F5 B1 f4 b3 F6 B2 f5 b4 F7 B3 f6 b5 B4 f7 b6 B5
          b7 B6 B7
        2 F0 F1 f0 F2 b0 f1 F3 b1 f2 B0 F4 b2 f3 B1 F5 b3 f4 B2 F6 b4 f5 B3 F7 b5 f6 B4 b6 f7 B5
          b7 B6 B7
        3 F0 F1 f0 b0 F2 f1 b1 F3 B0 f2 b2 F4 B1 f3 b3 F5 B2 f4 b4 F6 B3 f5 b5 F7 B4 f6 b6 B5 f7
          b7 B6 B7
    """)
    timeline = priced(4, 2, 8)
    assert timeline.makespan == 66
    assert chunk_units(timeline.peak, 2) == [7, 6, 5, 4]


def test_the_offsets_of_the_worked_example() -> None:
    """Section 3: x = 0, 9; z = 22, 13."""
    found = grid(4, 2)
    assert [found.start("F", stage, 0) for stage in (0, 4)] == [0, 9]
    assert [found.start("B", stage, 0) for stage in (3, 7)] == [22, 13]


@each_case("p", range(2, 17))
@each_case("v", [2, 3, 4])
def test_the_bubble_is_that_of_1f1b(p: int, v: int) -> None:
    """Section 3."""
    timeline = priced(p, v, 4 * p)
    assert timeline.makespan - timeline.work[0] == (p - 1) * v * 3


@each_case(
    ("p", "v", "units"),
    [
        *(
            (p, 2, n)
            for p, n in zip((2, 3, 4, 5, 6, 7, 8, 12, 16), (4, 5, 7, 9, 10, 11, 13, 19, 25))
        ),
        (6, 3, 12),
        (8, 4, 22),
        (16, 4, 42),
    ],
)
def test_the_published_peaks_of_the_first_device(p: int, v: int, units: int) -> None:
    """Section 3, text and table; the others hold one unit less each."""
    found = chunk_units(priced(p, v, 4 * p).peak, v)
    assert found == [units - r for r in range(p)]


@each_case("times", [(1, 1), (2, 3), (3, 5), (1, 3)])
@each_case(("p", "least"), [(4, 6), (8, 12)])
def test_other_times_have_the_bubble_of_1f1b_too(times: Times, p: int, least: int) -> None:
    """Section 3: peaks of 6 or 7 units for four devices, 12 or 13 for eight."""
    timeline = priced(p, 2, 4 * p, times)
    assert timeline.makespan == (4 * p + p - 1) * 2 * sum(times)
    assert chunk_units(timeline.peak, 2)[0] in (least, least + 1)


@pytest.mark.parametrize(
    ("p", "v", "alive"), [(8, 2, [9, 4]), (8, 4, [9, 7, 5, 2]), (16, 2, [17, 8])]
)
def test_first_stages_hold_more_than_last_ones(p: int, v: int, alive: list[int]) -> None:
    """Sections 3 and 7: microbatches in flight per stage of the first device."""
    lane = chronos(p, v, 4 * p).lane(0)
    found = []
    for stage in range(0, p * v, p):
        held, most = 0, 0
        for op in lane:
            held += {"F": 1, "B": -1}[op.kind] * (op.stage == stage)
            most = max(most, held)
        found.append(most)
    assert found == alive == [grid(p, v).waits(place) // v + 1 for place in range(v)]
    assert found == sorted(found, reverse=True)


@each_case("p", range(2, 17))
def test_a_microbatch_waits_only_where_it_comes_round(p: int) -> None:
    """Section 3: ((3 - p) mod 6 + (3 - 2p) mod 6) forward times in all, for v = 2 and B = 2F."""
    found = grid(p, 2)
    first, second = (found.start("F", stage, 0) for stage in (0, p))
    back, last = (found.start("B", stage, 0) for stage in (2 * p - 1, p - 1))
    waits = (second - first - p) + (back - second - p) + (last - back - 2 * p)
    assert waits == (3 - p) % 6 + (3 - 2 * p) % 6


@each_case("p", range(3, 17))
def test_it_holds_less_than_1f1b_from_three_devices_on(p: int) -> None:
    """Section 7."""
    for v in (2, 3, 4):
        assert priced(p, v, 4 * p).peak[0] < p


@pytest.mark.long
@pytest.mark.parametrize("v", [2, 3, 4])
def test_the_share_of_1f1b_tends_to_the_ideal_one(v: int) -> None:
    """Sections 2 and 7: (v + 1)/(2v)."""
    for p in (16, 64, 128):
        over = priced(p, v, p + 2).peak[0] / p - Fraction(v + 1, 2 * v)
        assert 0 <= over <= Fraction(1, p)


@pytest.mark.parametrize("m", [1, 5, 9])
def test_the_grid_of_one_stage_per_device_is_1f1b(m: int) -> None:
    schedule = build("1f1b", devices=4, microbatches=m)
    assert grid_lanes(grid(4, 1), m) == [schedule.lane(device) for device in range(4)]


def recomputed(p: int, m: int, v: int = 2) -> Timeline:
    cost = prices(v, USUAL)
    schedule = build("chronos-recompute", devices=p, microbatches=m, chunks=v, prices=cost)
    return simulate(schedule, UnitCost(times=cost))


def test_recompute_is_the_transform_of_the_first_stages() -> None:
    plain = chronos(4, 2, 8)
    cost = prices(2, USUAL)
    found = build("chronos-recompute", devices=4, microbatches=8, chunks=2, prices=cost)
    assert found == recompute_stages(plain, range(4))


@pytest.mark.parametrize(
    ("p", "share"), [(4, Fraction(3, 8)), (8, Fraction(5, 16)), (16, Fraction(9, 32))]
)
def test_with_recompute_the_peak_is_half_the_devices_and_one(p: int, share: Fraction) -> None:
    """Sections 4 and 7: 37.5%, 31.25% and 28.1% of 1F1B."""
    timeline = recomputed(p, 4 * p)
    assert chunk_units(timeline.peak, 2)[0] == p // 2 + 1
    assert timeline.peak[0] / p == share
    assert timeline.work[0] == 4 * p * 7


@pytest.mark.parametrize(("p", "inputs"), [(4, 5), (8, 9), (16, 17)])
def test_section_7_kept_inputs_do_not_depend_on_the_number_of_microbatches(
    p: int, inputs: int
) -> None:
    """As many as the first stage has in flight without recompute."""
    cost = prices(2, USUAL)
    sizes = {"act": Fraction(0), "ckpt": Fraction(1)}
    for m in (2 * p, 4 * p, 8 * p):
        schedule = build("chronos-recompute", devices=p, microbatches=m, chunks=2, prices=cost)
        found = simulate(schedule, UnitCost(times=cost, sizes=sizes))
        assert chunk_units(found.peak, 2)[0] == inputs


@each_case("name", ["chronos", "chronos-recompute"])
@each_case(("p", "v"), [(4, 2), (3, 3), (8, 4)])
def test_section_7_gradients_add_up_in_ascending_order(name: str, p: int, v: int) -> None:
    cost = prices(v, USUAL)
    schedule = build(name, devices=p, microbatches=2 * p, chunks=v, prices=cost)
    assert check(schedule).unordered == ()


def test_recompute_and_backward_as_one_op_slow_every_second_slot_down() -> None:
    """Section 4 (a): 303 for eight devices and 32 microbatches, where half of 1F1B has 273; apart,
    a recompute may begin before its gradient is there."""
    schedule = chronos(8, 2, 32)
    fused = {op: Fraction(3) for op in schedule.table.ops() if op.kind == "B" and op.stage < 8}
    cost = UnitCost(times=prices(2, USUAL), op_times=fused)
    assert simulate(schedule, cost).makespan == 303
    assert recomputed(8, 32).makespan == 266
    half = UnitCost(times={"F": Fraction(2), "I": Fraction(5), "W": Fraction(0)})
    assert simulate(build("1f1b", devices=8, microbatches=32), half).makespan == 273

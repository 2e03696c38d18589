"""Sections 6 and 7 of the reconstruction of AdaPtis: the worked example, and what a search owes."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.check import check
from penstock.core.schedule import Schedule
from penstock.cost.layers import layered_shape, read_layers
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.lower import lower
from penstock.schedules import Case, build, find, registry
from penstock.search.best.registered import rivals, searches_layers
from penstock.search.joint.adaptis import JointRequest, _found
from penstock.sim import simulate
from penstock.sim.timeline import Timeline
from schedules.picture import built, lanes, picture, priced
from search.pipelines import HEAVY_HEAD, IN_A_ROW, simulated

EXAMPLE = Case(4, 8)


def on_layers(schedule: Schedule, split: tuple[int, ...], layers: str = HEAVY_HEAD) -> Timeline:
    """A registered order on unequal stages, at unit prices."""
    shape = layered_shape(read_layers(layers), split, schedule.shape.devices, 8)
    return simulate(Schedule(schedule.name, shape, schedule.table, schedule.pairs))


def test_section_6_1f1b_on_equal_layers() -> None:
    timeline = on_layers(built("1f1b", p=4, m=8), (4, 4, 4, 5))
    assert (timeline.makespan, timeline.peak) == (228, (16, 12, 8, 4))
    assert round(100 * timeline.bubble_makespan, 1) == Fraction("47.4")


def test_section_6_interleaved_on_equal_chunks() -> None:
    timeline = on_layers(built("interleaved", p=4, m=8, v=2), (2, 2, 2, 2, 2, 2, 2, 3))
    assert (timeline.makespan, timeline.peak) == (210, (22, 18, 14, 10))
    assert round(100 * timeline.bubble_makespan, 1) == Fraction("42.9")


def test_section_6_1f1b_on_a_balanced_cut() -> None:
    timeline = on_layers(built("1f1b", p=4, m=8), (5, 5, 5, 2))
    assert (timeline.makespan, timeline.peak) == (165, (20, 15, 10, 1))
    assert round(100 * timeline.bubble_makespan, 1) == Fraction("27.3")


def test_section_6_a_cut_that_is_even_per_device_is_worse_under_another_order() -> None:
    timeline = on_layers(built("interleaved", p=4, m=8, v=2), (3, 3, 3, 1, 2, 2, 2, 1))
    assert set(timeline.work) == {120}
    assert (timeline.makespan, timeline.peak) == (180, (30, 26, 21, 5))
    assert round(100 * timeline.bubble_makespan, 1) == Fraction("33.3")


def test_section_6_the_listed_order_takes_145() -> None:
    listing = picture("""
        0 F0 F1 F2 F3 I0 W0 I1 F4 I2 W1 I3 F5 W2 F6 I4 W3 F7 W4 I5 W5 I6 W6 I7 W7
        1 F0 F1 F2 F3 I0 W0 I1 W1 I2 F4 I3 W2 W3 F5 I4 F6 W4 I5 F7 I6 W5 W6 I7 W7
        2 F0 F1 F2 I0 F3 I1 W0 I2 W1 I3 F4 W2 W3 I4 F5 W4 F6 I5 W5 I6 F7 W6 I7 W7
        3 F0 I0 F1 I1 F2 I2 F3 I3 W0 W1 F4 I4 W2 W3 F5 I5 F6 I6 W4 W5 F7 I7 W6 W7
    """)
    ops = [
        [(op[0], device, int(op[1:]), 0) for op in lane[1:]] for device, lane in enumerate(listing)
    ]
    timeline = simulated(HEAVY_HEAD, (5, 5, 5, 2), EXAMPLE, ops)
    assert (timeline.makespan, timeline.peak) == (145, (20, 20, 20, 4))
    assert round(100 * timeline.bubble_makespan, 1) == Fraction("17.2")


def heavy_head(v: int, limit: int) -> Timeline:
    return priced(built("adaptis", p=4, m=8, v=v, layers=HEAVY_HEAD, limit=limit))


def test_section_6_all_three_decisions_beat_131() -> None:
    timeline = heavy_head(v=2, limit=24)
    assert timeline.makespan == 129
    assert max(timeline.peak) <= 24


def test_section_6_cut_and_order_beat_145() -> None:
    timeline = heavy_head(v=1, limit=20)
    assert timeline.makespan == 135
    assert max(timeline.peak) <= 20
    homes = [{op.stage for op in timeline.schedule.lane(device)} for device in IN_A_ROW]
    assert all(len(stages) == 1 for stages in homes)


@pytest.mark.long
def test_section_7_1_the_simulation_is_the_estimate_of_the_search() -> None:
    spec = find("adaptis")
    for options in ({}, {"layers": HEAVY_HEAD, "limit": 24}, {"layers": "3,8*1/2@1,2@1/4"}):
        for prices in ({}, {"F": 3, "I": 4, "W": 2, "act": 2, "hop": Fraction(1, 2)}):
            case = spec.case(4, 8, 2, None, options, prices)
            request = JointRequest.of(case)
            times = {"F": case.F, "I": case.I, "W": case.W}
            sizes = {"act": case.act, "stash": case.stash}
            cost = UnitCost(times=times, sizes=sizes, hop=case.hop)
            found = _found(request).listed.makespan * request.scale.tick
            assert simulate(spec.build(case), cost).makespan == found


def test_section_7_2_split_with_the_memory_of_1f1b_is_3m_plus_p_minus_1() -> None:
    timeline = priced(built("adaptis", p=4, m=8, v=1, limit=4))
    assert timeline.makespan == 3 * 8 + 4 - 1
    assert max(timeline.peak) <= 4


LIMITS = (4, 5, 6, 8, 10, 12, 16, 20, 24, 32)


@pytest.fixture(scope="module")
def table() -> dict[tuple[int, int], Fraction]:
    """Makespans of the example for up to 1, 2 or 3 stages per device, under each limit."""
    return {(v, limit): heavy_head(v, limit).makespan for v in (1, 2, 3) for limit in LIMITS}


@pytest.mark.matrix
@pytest.mark.long
def test_section_7_3_more_memory_never_costs_time(table: dict[tuple[int, int], Fraction]) -> None:
    for v in (1, 2, 3):
        assert all(table[v, less] >= table[v, more] for less, more in pairwise(LIMITS))


@pytest.mark.long
def test_section_7_3_more_freedom_never_costs_time(table: dict[tuple[int, int], Fraction]) -> None:
    for limit in LIMITS:
        assert table[1, limit] >= table[2, limit] >= table[3, limit]


COSTS = (
    {},
    {"F": Fraction(10), "I": Fraction(11), "W": Fraction(8), "stash": Fraction(1, 2)},
    {"F": Fraction(1), "I": Fraction(2), "W": Fraction(1, 2), "hop": Fraction(1, 4)},
)


@pytest.mark.long
@pytest.mark.parametrize("prices", COSTS, ids=str)
@pytest.mark.parametrize(
    ("p", "m"),
    [
        (2, 4),
        pytest.param(3, 7, marks=pytest.mark.matrix),
        pytest.param(4, 8, marks=pytest.mark.matrix),
    ],
)
def test_section_7_4_it_is_never_worse_than_a_registered_schedule(
    p: int, m: int, prices: dict[str, Fraction]
) -> None:
    """Within the memory that the other one takes."""
    case = Case(p, m).at(prices)
    times = {"F": case.F, "I": case.I, "W": case.W}
    cost = UnitCost(times=times, sizes={"act": case.act, "stash": case.stash}, hop=case.hop)
    for spec in registry().values():
        if spec.priced or searches_layers(spec):
            continue
        for label, schedule in rivals(spec, case, 2, values=()):
            rival = simulate(schedule, cost)
            options = {"limit": max(rival.peak)}
            request = {"devices": p, "microbatches": m, "chunks": 2}
            mine = simulate(build("adaptis", **request, options=options, prices=prices), cost)
            assert mine.makespan <= rival.makespan, label
            assert max(mine.peak) <= max(rival.peak), label


def test_section_7_5_what_it_finds_is_proven_and_lowered() -> None:
    schedule = built("adaptis", p=4, m=8, v=3, layers=HEAVY_HEAD, limit=24)
    assert check(schedule).proven
    assert lower(schedule) is not None


@pytest.mark.long
def test_the_answer_is_the_same_every_time() -> None:
    once = built("adaptis", p=3, m=5, v=2, layers="9*1,2")
    _found.cache_clear()
    assert lanes(built("adaptis", p=3, m=5, v=2, layers="9*1,2")) == lanes(once)


def test_layers_may_stand_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "layers.txt"
    path.write_text("block x 16: F=1\nhead: F=4 I=4 W=4 act=0\n")
    schedule = built("adaptis", p=4, m=8, v=2, layers=path, limit=24)
    assert schedule == built("adaptis", p=4, m=8, v=2, layers=HEAVY_HEAD, limit=24)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layers": "3*1"}, "at least p layers"),
        ({"limit": "1/2"}, "one microbatch at a time fits"),
        ({"layers": "nothing.txt"}, "neither a list of layers nor a file"),
        ({"layers": "4*0"}, "no layer takes any time"),
        ({"layers": "20000*1"}, "cannot be divided into stages"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(ShapeError, match=words) as refusal:
        find("adaptis").case(4, 8, 2, None, options)
    assert refusal.value.hint

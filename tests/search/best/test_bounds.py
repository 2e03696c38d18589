"""Lower bounds: never above what an order reaches, and met where the optimum is known."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.schedule import Schedule
from penstock.cost.layers import Layer, Layers, layered_shape
from penstock.cost.model import UnitCost
from penstock.schedules import Case
from penstock.search.best.bounds import BOUNDS, lower_bound
from penstock.search.exact.exact import solve
from penstock.search.joint.joint import Effort, Problem, search
from penstock.search.joint.moves import CutAndHomes
from penstock.search.joint.pipeline import Scale
from penstock.sim import simulate
from search.pipelines import HEAVY_HEAD, problem

numbers = st.integers(0, 4).map(Fraction)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Few layers of any cost on few devices, within any memory that is enough."""
    p = draw(st.integers(1, 3))
    layers = tuple(draw(st.lists(st.builds(Layer, *[numbers] * 5), min_size=p, max_size=p + 4)))
    m, slices = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    scale = Scale.of(layers, Case(p, m, hop=draw(numbers)))
    whole = slices * int(scale.layers[:, 3].sum())
    cap = draw(st.sampled_from([whole, 2 * whole, scale.limit(None)]))
    return Problem(scale, p, m, 2, cap, slices)


@settings(max_examples=120, deadline=None)
@given(problems())
def test_no_order_is_below_a_bound(found: Problem) -> None:
    best = search(found, Effort(300_000))
    assert best is not None
    for name, bound in BOUNDS.items():
        assert bound(found) <= best.listed.makespan, name


def layouts(layers: int, p: int) -> Iterator[CutAndHomes]:
    """Every cut into one to two stages per device, on every placement that uses all devices."""
    for stages in range(p, min(layers, 2 * p) + 1):
        for inner in combinations(range(1, layers), stages - 1):
            split = tuple(b - a for a, b in pairwise((0, *inner, layers)))
            for homes in product(range(p), repeat=stages):
                if len(set(homes)) == p:
                    yield CutAndHomes(split, homes)


def one_by_one(layers: Layers, layout: CutAndHomes, case: Case) -> Schedule:
    """Each microbatch all the way down and back before the next one starts."""
    stages = range(len(layout.split))
    down = [[("F", s, mb, 0) for s in stages] for mb in range(case.m)]
    back = [[(k, s, mb, 0) for s in stages[::-1] for k in "IW"] for mb in range(case.m)]
    ops = [op for way in zip(down, back) for part in way for op in part]
    lanes = [[op for op in ops if layout.placement[op[1]] == r] for r in range(case.p)]
    return Schedule.of("one by one", layered_shape(layers, layout.split, case.p, case.m), lanes)


@pytest.mark.long
@pytest.mark.parametrize(
    ("rows", "case", "limit", "ticks", "reason"),
    [
        (["01331", "22033", "22011"], Case(2, 1), 8, 12, "first return"),
        (["11111", "21111", "11111"], Case(2, 2, hop=Fraction(1)), 4, 12, "first return"),
        (["11111", "31011"], Case(2, 3), 1, 21, "memory"),
        (["20122", "31111", "11132"], Case(2, 2), None, 12, "last departure"),
    ],
    ids=str,
)
def test_the_best_order_of_every_cut_and_placement_is_not_below_the_bound(
    rows: list[str], case: Case, limit: int | None, ticks: int, reason: str
) -> None:
    pytest.importorskip("ortools", reason="needs the extra `solve`")
    layers = tuple(Layer(*map(Fraction, row)) for row in rows)
    cost, room = UnitCost(hop=case.hop), None if limit is None else Fraction(limit)
    starts = [one_by_one(layers, layout, case) for layout in layouts(len(layers), case.p)]
    fitting = [s for s in starts if room is None or max(simulate(s, cost).peak) <= room]
    best = min(solve(start, cost, limit=room, effort=5).bound for start in fitting)
    scale = Scale.of(layers, case)
    bound = lower_bound(Problem(scale, case.p, case.m, 2, scale.limit(room)))
    assert (bound.ticks, bound.reason) == (ticks, reason)
    assert bound.ticks * scale.tick <= best


@pytest.mark.parametrize(
    ("layers", "p", "m", "limit", "ticks", "reason"),
    [
        ("4*1", 1, 5, None, 60, "work"),
        ("9,1@0", 2, 8, None, 216, "heaviest layer"),
        ("4*1", 4, 1, None, 9, "first return"),
        ("4*1", 4, 2, 1, 18, "memory"),
    ],
)
def test_where_the_optimum_is_known_the_bound_is_met(
    layers: str, p: int, m: int, limit: int | None, ticks: int, reason: str
) -> None:
    found = problem(layers, p, m, limit=None if limit is None else Fraction(limit))
    bound = lower_bound(found)
    assert (bound.ticks, bound.reason) == (ticks, reason)
    best = search(found, Effort(1_000_000))
    assert best is not None
    assert best.listed.makespan == ticks


def test_the_example_of_the_paper_is_bounded_by_its_ramp() -> None:
    """Work 480 and delays 0 + 1 + 2 + 3 on four devices."""
    bound = lower_bound(problem(HEAVY_HEAD, 4, 8))
    assert (bound.ticks, bound.reason) == (122, "ramp")


def test_slices_let_devices_start_earlier_and_a_sequence_return_earlier() -> None:
    """Four slices, in quarters: delays 0 + 1 + 2 + 3, and 3 + 4 forwards until the first return."""
    layers = tuple([Layer()] * 4)
    sliced = Problem(Scale.of(layers, Case(4, 8)), 4, 8, 1, 10**9, slices=4)
    assert BOUNDS["ramp"](sliced) == -(-(8 * 4 * 12 + 6) // 4)
    one = Problem(sliced.scale, 4, 1, 1, 10**9, slices=4)
    assert BOUNDS["first return"](one) == 3 + 4 + 3 + 4 * 2
    found = search(one, Effort(1_000_000))
    assert found is not None
    assert found.listed.makespan == 18


def test_latency_delays_the_start_of_each_device() -> None:
    layers = tuple([Layer()] * 4)
    still = Problem(Scale.of(layers, Case(4, 8)), 4, 8, 1, 10**9)
    slow = Problem(Scale.of(layers, Case(4, 8, hop=Fraction(4))), 4, 8, 1, 10**9)
    assert BOUNDS["ramp"](slow) - BOUNDS["ramp"](still) == 4 * (1 + 2 + 3) // 4
    assert BOUNDS["first return"](slow) - BOUNDS["first return"](still) == 2 * 3 * 4

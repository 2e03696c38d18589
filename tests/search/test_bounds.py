"""Lower bounds: never above what an order reaches, and met where the optimum is known."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cost.layers import Layer
from penstock.schedules import Case
from penstock.search.bounds import BOUNDS, lower_bound
from penstock.search.joint import Effort, Problem, search
from penstock.search.pipeline import Scale
from search.pipelines import HEAVY_HEAD, problem

numbers = st.integers(0, 4).map(Fraction)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Few layers of any cost on few devices, within any memory that is enough."""
    p = draw(st.integers(1, 3))
    layers = tuple(draw(st.lists(st.builds(Layer, *[numbers] * 5), min_size=p, max_size=p + 4)))
    m = draw(st.integers(1, 5))
    scale = Scale.of(layers, Case(p, m, hop=draw(numbers)))
    whole = int(scale.layers[:, 3].sum())
    return Problem(scale, p, m, 2, draw(st.sampled_from([whole, 2 * whole, scale.limit(None)])))


@settings(max_examples=120, deadline=None)
@given(problems())
def test_no_order_is_below_a_bound(found: Problem) -> None:
    best = search(found, Effort(300_000))
    assert best is not None
    for name, bound in BOUNDS.items():
        assert bound(found) <= best.listed.makespan, name


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


def test_latency_delays_the_start_of_each_device() -> None:
    layers = tuple([Layer()] * 4)
    still = Problem(Scale.of(layers, Case(4, 8)), 4, 8, 1, 10**9)
    slow = Problem(Scale.of(layers, Case(4, 8, hop=Fraction(4))), 4, 8, 1, 10**9)
    assert BOUNDS["ramp"](slow) - BOUNDS["ramp"](still) == 4 * (1 + 2 + 3) // 4
    assert BOUNDS["first return"](slow) - BOUNDS["first return"](still) == 2 * 3 * 4

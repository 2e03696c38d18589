"""Zero-bubble orders for measured times; sections are those of the paper's specification."""

from fractions import Fraction
from itertools import pairwise
from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loops import each_case
from penstock.check import check
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate
from schedules.measured import built_for, cost, measured
from schedules.picture import bubble, built, lanes, picture

HALF = {"act": 2, "stash": 1}
MEASURED = [
    ((10, 11, 8), 1, 4),
    ((20, 18, 9), 1, 4),
    ((3, 4, 2), 0, 5),
    ((2, 5, 2), 0, 3),
    ((7, 4, 3), 2, 5),
]
"""Times, latency and devices."""


def test_section_9_1p_is_the_handcrafted_order_at_equal_times() -> None:
    assert lanes(built("zb-1p", p=4, m=8)) == picture("""
        0 F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7
        1 F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7
        2 F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7
        3 F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7
    """)


def test_2p_keeps_weight_gradients_back_for_longer_than_the_handcrafted_order() -> None:
    assert lanes(built("zb-2p", p=4, m=8)) == picture("""
        0 F0 F1 F2 F3 F4 F5 F6 I0 F7 W0 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7
        1 F0 F1 F2 F3 F4 I0 F5 I1 F6 I2 F7 I3 W0 I4 W1 I5 W2 I6 W3 I7 W4 W5 W6 W7
        2 F0 F1 F2 I0 F3 I1 F4 I2 F5 I3 F6 I4 F7 I5 W0 I6 W1 I7 W2 W3 W4 W5 W6 W7
        3 F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 F7 I7 W0 W1 W2 W3 W4 W5 W6 W7
    """)


def test_a_limit_between_the_two_ends_between_the_two() -> None:
    assert lanes(built("zb-auto", p=4, m=8, limit=6)) == picture("""
        0 F0 F1 F2 F3 F4 F5 I0 W0 F6 I1 I2 W1 F7 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7
        1 F0 F1 F2 F3 F4 I0 F5 I1 W0 I2 F6 I3 W1 I4 F7 I5 W2 W3 I6 W4 W5 I7 W6 W7
        2 F0 F1 F2 I0 F3 I1 F4 I2 F5 I3 W0 I4 F6 I5 W1 F7 I6 W2 W3 I7 W4 W5 W6 W7
        3 F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 W0 F6 I6 W1 F7 I7 W2 W3 W4 W5 W6 W7
    """)
    timeline = measured(cost(), "zb-auto", 4, 8, limit=6)
    assert (bubble(timeline), timeline.peak) == (1, (6, 6, 6, 6))


@each_case("p", range(2, 9))
@each_case("sizes", [HALF, {"act": 1, "stash": 1}])
def test_section_10_at_unit_times_1p_is_the_handcrafted_order(
    p: int, sizes: dict[str, int]
) -> None:
    prices = cost(sizes=sizes)
    for m in (p + 1, 2 * p - 1, 2 * p + 5):
        assert built_for(prices, "zb-1p", p, m) == build("zb-h1", devices=p, microbatches=m)
    for m in range(1, p + 1):
        spans = {measured(prices, name, p, m).span for name in ("zb-1p", "zb-h1")}
        assert len(spans) == 1  # other orders, equally long


@each_case("p", range(2, 9))
def test_section_10_at_unit_times_2p_has_no_bubble_within_its_memory(p: int) -> None:
    for m in (2 * p - 1, 2 * p + 5):
        timeline = measured(cost(sizes=HALF), "zb-2p", p, m)
        assert timeline.span == 3 * m
        assert max(timeline.peak) <= 2 * p * 2
    for name in ("zb-1p", "zb-2p"):
        assert measured(cost(sizes=HALF), name, p, m=p).span == 3 * p + p - 1


@each_case("name", ["zb-1p", "zb-2p"])
@each_case("times", [(1, 1, 1), (3, 4, 2), (10, 11, 8), (2, 2, 1), (1, 3, 2)])
def test_section_10_few_microbatches_expose_one_weight_gradient(
    name: str, times: tuple[int, int, int]
) -> None:
    """With a W longer than F, no order reaches the formula: see test_zero_bubble.py."""
    F, I, W = times  # noqa: E741 - the letters of the ops
    for p in range(2, 7):
        for m in range(1, p + 1):
            found = measured(cost(times, sizes=HALF), name, p, m)
            assert found.makespan == (m + p - 1) * (F + I) + W + (m - 1) * max(0, W - F)


@each_case(
    ("p", "limit", "optimum"),
    [(2, 1, 20), (2, 2, 13), (2, 3, 12), (3, 1, 28), (3, 2, 17), (3, 3, 14), (3, 5, 13), (4, 2, 21),
     (4, 3, 18)],
)  # fmt: skip
def test_section_5_no_order_is_better_than_the_optimum(p: int, limit: int, optimum: int) -> None:
    found = measured(cost(), "zb-auto", p, 4, limit=limit).span
    assert found >= optimum
    assert found == optimum or 1 < limit < p  # with room for 1F1B or for one microbatch, the best


@each_case("p", range(1, 8))
def test_section_5_the_bubble_shrinks_by_one_forward_per_activation(p: int) -> None:
    m = 2 * p + 3
    for limit in range(p, 2 * p + 2):
        assert measured(cost(), "zb-auto", p, m, limit=limit).span == 3 * m + max(
            0, 2 * p - 1 - limit
        )


@each_case(("times", "hop", "p"), MEASURED)
def test_section_4_memory_for_a_start_without_bubble(
    times: tuple[int, int, int], hop: int, p: int
) -> None:
    F, I, _ = times  # noqa: E741 - the letters of the ops
    enough = floor(Fraction((p - 1) * (I + 2 * hop) + p * F, F))
    prices = cost(times, hop=hop)
    for limit in range(1, enough + 2 * p):
        schedule = built_for(prices, "zb-auto", p, 24, limit=limit)
        warmup = [op.kind for op in schedule.lane(0)].index("I")
        waits = (p - 1) * (I + 2 * hop) + (p - warmup) * F
        assert bubble(simulate(schedule, prices)) >= waits
        if limit <= enough:
            assert warmup == limit
            assert waits >= 0
        # More than `enough` closes the last gaps, which are shorter than a forward.
        assert warmup <= enough + p - 1


@each_case(("times", "hop", "p"), MEASURED)
def test_section_10_more_memory_never_makes_the_bubble_larger_here(
    times: tuple[int, int, int], hop: int, p: int
) -> None:
    prices = cost(times, hop=hop, sizes={"act": 3, "stash": 1})
    rates = [
        measured(prices, "zb-auto", p, 32, limit=3 * alive).bubble_span for alive in range(1, 4 * p)
    ]
    assert all(before >= after for before, after in pairwise(rates))
    assert rates[-1] < Fraction(1, 1000)


@each_case(
    ("p", "m", "times", "hop", "sizes", "rates"),
    [
        (8, 24, ("18.5", "18.1", "9.3"), "0.6", (3, 1), "0.2430 0.1588 0.1087 0.1588 0.0440"),
        (4, 12, ("10", "11", "8"), "1", (2, 1), "0.2385 0.1278 0.0569 0.1278 0.0252"),
        (8, 32, ("30", "29", "20"), "0.5", (7, 3), "0.1884 0.1020 0.0525 0.1020 0.0000"),
        (16, 48, ("11", "11", "8"), "0.4", (7, 4), "0.2567 0.1398 0.0661 0.1398 0.0072"),
    ],
)
def test_bubble_rates_are_those_of_the_authors_code(
    p: int, m: int, times: tuple[str, str, str], hop: str, sizes: tuple[int, int], rates: str
) -> None:
    prices = cost(times, hop=hop, sizes=dict(zip(("act", "stash"), sizes)))
    names = ("1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p")
    found = [f"{float(measured(prices, name, p, m).bubble_span):.4f}" for name in names]
    assert found == rates.split()


@st.composite
def prices_of_ops(draw: st.DrawFn) -> UnitCost:
    """Any times, also none, with stashes smaller and larger than activations."""
    times, sizes = st.integers(0, 9), st.integers(0, 4)
    return cost(
        (draw(times), draw(times), draw(times)),
        hop=draw(st.sampled_from([0, 0, 1, 3, 40])),
        sizes={"act": draw(sizes), "stash": draw(sizes)},
    )


@settings(max_examples=150, deadline=None)
@given(prices=prices_of_ops(), p=st.integers(1, 6), m=st.integers(1, 10), extra=st.fractions(0, 20))
def test_any_prices_lead_to_a_proven_order_within_the_limit(
    prices: UnitCost, p: int, m: int, extra: Fraction
) -> None:
    limit = max(prices.size("act"), prices.size("stash")) + extra
    schedule = built_for(prices, "zb-auto", p, m, limit=limit)
    assert check(schedule).findings == ()
    assert max(simulate(schedule, prices).peak) <= limit
    for device in range(p):
        weights = [op.mb for op in schedule.lane(device) if op.kind == "W"]
        assert weights == list(range(m))


def test_a_limit_below_one_microbatch_is_refused() -> None:
    with pytest.raises(ShapeError, match="limit is at least act and at least stash") as refusal:
        built("zb-auto", p=4, m=8, limit="1/2")
    assert "-o limit=1/2" in refusal.value.hint
    with pytest.raises(ShapeError, match="limit is at least act"):
        built_for(cost(sizes=HALF), "zb-auto", 4, 8, limit=1)
    with pytest.raises(ShapeError, match="limit=-1 is below 0"):
        built("zb-auto", p=4, m=8, limit=-1)
    assert built_for(cost(sizes=HALF), "zb-auto", 4, 8, limit=2).lane(0)[1].kind == "I"


def test_the_limit_is_that_of_1f1b_if_none_is_given() -> None:
    prices = cost((3, 4, 2), sizes=HALF)
    assert built_for(prices, "zb-auto", 4, 8) == built_for(prices, "zb-1p", 4, 8)
    assert built_for(prices, "zb-auto", 4, 8, limit=16) == built_for(prices, "zb-2p", 4, 8)

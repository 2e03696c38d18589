from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from loops import each_case
from penstock.check import check
from penstock.sim import simulate
from schedules.measured import built_for, cost, measured
from schedules.picture import bubble, built, chunk_units, lanes, picture, priced


def test_the_order_at_equal_times() -> None:
    assert lanes(built("zb-v-auto", p=3, m=5)) == picture("""
        0 F0 F1 F2 F3 F4 f0 i0 w0 f1 i1 w1 f2 i2 w2 I0 W0 f3 i3 w3 I1 W1 f4 i4 I2 w4 I3 W2 I4 W3 W4
        1 F0 F1 F2 f0 F3 f1 i0 w0 f2 i1 w1 F4 I0 W0 f3 i2 w2 I1 W1 f4 i3 I2 i4 I3 w3 I4 W2 w4 W3 W4
        2 F0 f0 F1 f1 F2 f2 i0 w0 F3 I0 W0 f3 i1 w1 F4 I1 W1 f4 i2 I2 i3 I3 i4 I4 w2 W2 w3 W3 w4 W4
    """)


@each_case("p", range(1, 9))
def test_section_6_no_bubble_and_the_memory_of_1f1b_on_every_device(p: int) -> None:
    for m in (2 * p - 1, 2 * p, 2 * p + 5):
        timeline = priced(built("zb-v-auto", p=p, m=m))
        assert bubble(timeline) == 0
        assert chunk_units(timeline.peak, 2) == [2 * p] * p


@each_case("times", [(10, 11, 8), (3, 4, 2), (2, 2, 1), (5, 4, 3), (1, 2, 3)])
@each_case("hop", [0, 1])
def test_measured_times_leave_no_more_bubble_than_the_fixed_order(
    times: tuple[int, int, int], hop: int
) -> None:
    prices = cost(times, hop=hop)
    for p, m in ((2, 6), (4, 8), (4, 12), (6, 12)):
        fixed, found = (measured(prices, name, p, m).span for name in ("zb-v", "zb-v-auto"))
        assert found <= fixed


@each_case(
    ("p", "m", "times", "hop", "sizes", "rate"),
    [
        (8, 24, ("18.5", "18.1", "9.3"), "0.6", (3, 1), "0.0705"),
        (4, 12, ("10", "11", "8"), "1", (2, 1), "0.0620"),
        (8, 32, ("30", "29", "20"), "0.5", (7, 3), "0.0297"),
        (16, 48, ("11", "11", "8"), "0.4", (7, 4), "0.0508"),
    ],
)
def test_bubble_rates_are_those_of_the_authors_code(
    p: int, m: int, times: tuple[str, str, str], hop: str, sizes: tuple[int, int], rate: str
) -> None:
    prices = cost(times, hop=hop, sizes=dict(zip(("act", "stash"), sizes)))
    found = measured(prices, "zb-v-auto", p, m).bubble_span
    assert f"{float(found):.4f}" == rate


@settings(max_examples=150, deadline=None)
@given(
    times=st.tuples(*[st.integers(0, 9)] * 3),
    hop=st.sampled_from([0, 0, 1, 3, 40]),
    act=st.integers(0, 4),
    stash=st.integers(0, 5),
    p=st.integers(1, 6),
    m=st.integers(1, 10),
)
def test_any_prices_lead_to_a_proven_order_within_the_memory(
    times: tuple[int, int, int], hop: int, act: int, stash: int, p: int, m: int
) -> None:
    prices = cost(times, hop=hop, sizes={"act": act, "stash": stash})
    schedule = built_for(prices, "zb-v-auto", p, m)
    assert check(schedule).findings == ()
    assert max(simulate(schedule, prices).peak) <= Fraction(p * max(act, stash))
    for device in range(p):
        for stage in (device, 2 * p - 1 - device):
            weights = [op.mb for op in schedule.lane(device) if op[:2] == ("W", stage)]
            assert weights == list(range(m))

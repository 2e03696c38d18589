"""What a copy lane beside the compute lane may hold, whatever the timing."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.check import check
from penstock.core.schedule import After, Schedule
from penstock.core.shape import Shape
from penstock.cost.model import UnitCost
from penstock.sim import simulate
from search.proof import proven_peaks
from transform.pictures import draw, ops

TWO = Shape(1, 1, (1, 1))


def drawn(text: str, *holds: str) -> Schedule:
    schedule = draw(text, TWO, after=tuple(After(*ops(hold)) for hold in holds))
    assert check(schedule).findings == ()
    return schedule


LANES = """
    0       0F0 0F1 0B1 0B0
    0 copy  0O0 0L0
"""


def test_an_offload_counts_where_the_next_forward_waits_for_it() -> None:
    assert proven_peaks(drawn(LANES, "0F1 0O0", "0L0 0B1")) == [1]
    assert proven_peaks(drawn(LANES, "0L0 0B1")) == [2]


def test_a_load_counts_from_what_it_waits_for() -> None:
    assert proven_peaks(drawn(LANES, "0F1 0O0")) == [2]


def test_a_copy_lane_is_in_one_place_at_a_time() -> None:
    """While B0 runs the lane moves one activation out and then another in, never both at once."""
    schedule = draw(
        """
        0       0F0 0F1 0F2 0B0 0B1 0B2
        0 copy  0O1 0O2 0L1 0L2
        """,
        Shape(1, 1, (1, 1, 1)),
        after=tuple(After(*ops(hold)) for hold in ("0F2 0O1", "0L1 0F2", "0L2 0B1")),
    )
    assert check(schedule).findings == ()
    assert proven_peaks(schedule) == [2]


def test_what_is_taken_while_the_device_waits_counts_too() -> None:
    """Before B1 starts, F1 is loaded although F0 has not left yet."""
    schedule = draw(
        """
        0       0F0 0F1 0F2 0B1 0B0 0B2
        0 copy  0O1 0L1 0O0 0L0
        """,
        Shape(1, 1, (1, 1, 1)),
        after=tuple(After(*ops(hold)) for hold in ("0F2 0O1", "0L1 0F2", "0B1 0O0", "0L0 0B1")),
    )
    assert check(schedule).findings == ()
    assert proven_peaks(schedule) == [3]


TIMES = st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(1), Fraction(7)])
HOLDS = st.lists(st.sampled_from(["0F1 0O0", "0L0 0B1", "0L0 0F1"]), unique=True)


@given(HOLDS, st.lists(TIMES, min_size=6, max_size=6))
@settings(deadline=None)
def test_no_timing_exceeds_what_is_proven(holds: list[str], times: list[Fraction]) -> None:
    schedule = drawn(LANES, *holds)
    lengths = dict(zip(schedule.table.ops(), times))
    assert simulate(schedule, UnitCost(op_times=lengths)).peak[0] <= proven_peaks(schedule)[0]


def test_an_offload_that_is_priced_at_nothing_has_left_before_the_next_op() -> None:
    ordered = drawn(LANES, "0F1 0O0", "0L0 0B1")
    assert simulate(ordered).peak == (1,)

"""The interlaced baseline of arXiv:2411.05288."""

from fractions import Fraction
from itertools import pairwise

from loops import each_case
from penstock.cost.model import UnitCost
from penstock.sim import simulate
from schedules.picture import built, lanes, picture


def test_the_published_order() -> None:
    """Worked out by hand from the rule; the T of an S is part of it, and input passes are ours."""
    found = [
        [word for word in words if word[0] not in "EDT"]
        for words in lanes(built("interlaced", p=4, m=8))
    ]
    assert found == picture("""
        0 F0 F1 F2 F3 F4 F5 S0 S1 S2 S3 B0 S4 F6 B1 S5 F7 B2 S6 B3 S7 B4 B5 B6 B7
        1 F0 F1 F2 F3 F4 S0 S1 S2 B0 S3 B1 F5 S4 B2 F6 S5 B3 F7 S6 B4 S7 B5 B6 B7
        2 F0 F1 F2 F3 S0 S1 B0 S2 B1 S3 F4 B2 S4 F5 B3 S5 F6 B4 S6 F7 B5 S7 B6 B7
        3 F0 F1 F2 S0 B0 S1 B1 S2 B2 F3 S3 B3 F4 S4 B4 F5 S5 B5 F6 S6 B6 F7 S7 B7
    """)


def test_every_s_is_followed_by_its_t() -> None:
    for device in range(4):
        ops = built("interlaced", p=4, m=8).lane(device)
        for op, following in pairwise(ops):
            assert (op.kind == "S") == (following == op._replace(kind="T"))


@each_case("p", range(1, 17))
def test_half_as_much_memory_again_as_1f1b_and_the_same_bubble(p: int) -> None:
    m = 2 * p
    times = {"S": Fraction(1, 3), "T": Fraction(2, 3)}
    timeline = simulate(built("interlaced", p=p, m=m), UnitCost(times=times))
    assert timeline.makespan == m * 4 + (p - 1) * 3
    assert timeline.peak == tuple(3 * p // 2 - r for r in range(p))

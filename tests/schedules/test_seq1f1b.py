from dataclasses import replace
from fractions import Fraction

from loops import each_case
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.schedules import find
from schedules.picture import built, lanes, picture, priced


def test_slices_go_forward_left_to_right_and_back_right_to_left() -> None:
    assert lanes(built("seq1f1b", p=4, m=4, k=2)) == picture("""
        0 F0 F0.1 F1   F1.1 F2   B0.1 F2.1 B0   F3   B1.1 F3.1 B1   B2.1 B2   B3.1 B3
        1 F0 F0.1 F1   F1.1 B0.1 F2   B0   F2.1 B1.1 F3   B1   F3.1 B2.1 B2   B3.1 B3
        2 F0 F0.1 F1   B0.1 F1.1 B0   F2   B1.1 F2.1 B1   F3   B2.1 F3.1 B2   B3.1 B3
        3 F0 F0.1 B0.1 F1   B0   F1.1 B1.1 F2   B1   F2.1 B2.1 F3   B2   F3.1 B3.1 B3
    """)


def test_time_and_memory_of_the_worked_example() -> None:
    timeline = priced(built("seq1f1b", p=4, m=4, k=2))
    assert timeline.makespan == Fraction(33, 2)
    assert timeline.peak == (Fraction(5, 2), 2, Fraction(3, 2), 1)


def test_the_published_pictures_with_and_without_slices() -> None:
    assert priced(built("seq1f1b", p=4, m=8, k=1)).makespan == 33
    assert priced(built("seq1f1b", p=4, m=8, k=2)).makespan == Fraction(57, 2)


def test_four_slices() -> None:
    timeline = priced(built("seq1f1b", p=4, m=8, k=4))
    assert timeline.makespan == Fraction(105, 4)
    assert timeline.bubble_makespan == Fraction(3, 35)
    assert timeline.peak == (Fraction(7, 4), Fraction(3, 2), Fraction(5, 4), 1)


@each_case(("p", "m"), [(1, 2), (2, 3), (4, 8), (4, 2)])
def test_one_slice_is_1f1b(p: int, m: int) -> None:
    assert built("seq1f1b", p=p, m=m, k=1) == built("1f1b", p=p, m=m)


@each_case("k", [1, 2, 3, 8])
def test_the_last_device_never_holds_more_than_one_sequence(k: int) -> None:
    peaks = priced(built("seq1f1b", p=4, m=6, k=k)).peak
    assert peaks[-1] == 1
    assert peaks[0] == Fraction(3 + k, k)


def with_shares(shares: list[Fraction]) -> Schedule:
    shape = replace(Shape.even(4, 8, 1, len(shares)), slice_share=(tuple(shares),) * 8)
    return Schedule.of("uneven", shape, find("seq1f1b").generate(shape))


def test_even_cuts_of_causal_attention_cost_more_than_no_cuts() -> None:
    attention = [Fraction(share, 16) for share in (1, 3, 5, 7)]
    mixed = [(share + Fraction(1, 4)) / 2 for share in attention]
    assert priced(with_shares(attention)).makespan == Fraction("43.6875")
    assert priced(with_shares(mixed)).makespan == Fraction("34.96875")
    assert priced(with_shares([Fraction(1, 4)] * 4)).makespan == Fraction(105, 4)

from fractions import Fraction

from schedules.picture import built, lanes, picture, priced


def test_the_batch_goes_back_the_way_it_came() -> None:
    assert lanes(built("terapipe", p=2, m=2, k=3)) == picture("""
        0 F0 F0.1 F0.2 F1 F1.1 F1.2 B1.2 B1.1 B1 B0.2 B0.1 B0
        1 F0 F0.1 F0.2 F1 F1.1 F1.2 B1.2 B1.1 B1 B0.2 B0.1 B0
    """)


def test_slices_shrink_the_bubble_and_not_the_memory() -> None:
    timeline = priced(built("terapipe", p=4, m=2, k=4))
    assert timeline.makespan == 6 + Fraction(9, 4)
    assert timeline.peak == (2, 2, 2, 2)
    assert priced(built("gpipe", p=4, m=2)).makespan == 6 + 9


def test_whole_sequences_take_the_time_of_all_forwards_then_all_backwards() -> None:
    unsliced, known = built("terapipe", p=4, m=6), built("gpipe", p=4, m=6)
    assert priced(unsliced).makespan == priced(known).makespan
    assert [op.mb for op in unsliced.lane(0)] == [0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0]

from fractions import Fraction

from loops import each_case
from penstock.core.ops import Op
from schedules.picture import built, chunk_units, lanes, picture, priced


def test_eight_steps_on_two_devices() -> None:
    assert lanes(built("dualpipev", p=2, m=4)) == picture("""
        0 F0 F1 F2 f0 i0 w0 f1 F3+b1 f2+B0 b2 f3+B1 b3 I2 W2 I3 W3
        1 F0 f0 F1 f1 F2 b0 f2+B0 F3+b1 f3+B1 b2 B2 i3 I3 w3 W3
    """)


def test_pairs_braid_a_forward_of_one_way_with_a_backward_of_the_other() -> None:
    for forward, backward in built("dualpipev", p=4, m=8).pairs:
        assert (forward.kind, backward.kind) == ("F", "B")
        assert forward.stage + backward.stage == 7


def test_the_first_pair_at_the_fold_is_not_braided() -> None:
    schedule = built("dualpipev", p=4, m=8)
    braided = {op for pair in schedule.pairs for op in pair}
    assert Op("B", 4, 0) not in braided
    assert Op("B", 3, 0) in braided


@each_case("p", range(1, 9))
@each_case("more", [0, 3])
def test_bubble_and_memory_of_the_published_table(p: int, more: int) -> None:
    m = 2 * p + more
    F, W = 3, 2
    timeline = priced(built("dualpipev", p=p, m=m), (F, F, W))
    braided, backward = F + (F + W), F + W
    assert timeline.makespan - m * (2 * F + W) == (p - 1) * Fraction(braided + backward - 3 * W, 2)
    assert chunk_units(timeline.peak, 2) == [2 * p + 1] * p

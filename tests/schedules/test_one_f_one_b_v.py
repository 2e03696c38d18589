import pytest

from loops import each_case
from schedules.picture import bubble, built, chunk_units, lanes, picture, priced

PEAKS = {4: 6, 5: 8, 6: 10, 8: 12, 16: 22}
BUBBLES = {4: 15, 8: 33, 16: 75}


@each_case(("p", "peak"), PEAKS.items())
def test_section_6_measured_activations_of_a_stage(p: int, peak: int) -> None:
    """arXiv:2405.15362, section 6: about two thirds of the 2p of 1F1B, on every device."""
    timeline = priced(built("1f1b-v", p=p, m=2 * p))
    assert chunk_units(timeline.peak, 2) == [peak] * p


@pytest.mark.parametrize(("p", "idle"), BUBBLES.items())
def test_section_6_measured_bubbles(p: int, idle: int) -> None:
    """arXiv:2405.15362, section 6: against 6(p - 1) of 1F1B, and independent of m."""
    for m in (2 * p, 2 * p + 7):
        assert 2 * bubble(priced(built("1f1b-v", p=p, m=m))) == idle < 6 * (p - 1)


@each_case("p", range(1, 17))
def test_the_peak_has_a_closed_form(p: int) -> None:
    timeline = priced(built("1f1b-v", p=p, m=2 * p))
    assert timeline.peak == ((2 * p + 3) // 3,) * p


def test_the_order_of_the_public_construction() -> None:
    assert lanes(built("1f1b-v", p=4, m=8)) == picture("""
        0 F0 F1 F2 F3 F4 f0 b0 f1 b1 f2 b2 f3 b3 B0 F5 f4 b4 B1 F6 f5 b5 B2 F7 f6 b6 B3 f7 b7
          B4 B5 B6 B7
        1 F0 F1 F2 F3 f0 f1 b0 f2 b1 F4 b2 f3 B0 b3 f4 F5 B1 b4 f5 F6 B2 b5 f6 F7 B3 b6 f7 B4
          b7 B5 B6 B7
        2 F0 F1 F2 f0 f1 f2 b0 F3 b1 F4 B0 f3 b2 B1 f4 b3 F5 B2 f5 b4 F6 B3 f6 b5 F7 B4 f7 b6
          B5 b7 B6 B7
        3 F0 f0 F1 f1 F2 f2 b0 B0 F3 f3 b1 B1 F4 f4 b2 B2 F5 f5 b3 B3 F6 f6 b4 B4 F7 f7 b5 B5
          b6 B6 b7 B7
    """)

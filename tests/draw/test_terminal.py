"""A timeline as text."""

import re

import pytest

from draw.samples import SAMPLES, braided, plain, renamed, timeline, with_copies
from penstock.draw.terminal import IDLE, render
from penstock.errors import ShapeError

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def lanes(text: str) -> list[str]:
    """The lines of devices, without their names and peaks."""
    return [line.split("  ")[-2] for line in text.splitlines() if re.match(r" *\d+  ", line)]


def test_one_forward_one_backward_looks_like_the_paper() -> None:
    assert (
        "\n" + render([plain()], width=96, color=False).replace(IDLE, ".")
        == """
1f1b   4 devices, 4 microbatches   makespan 21   bubble 42.9%   peak 4
time  0                   5                   10                  15                  20    peak
   0  F0--F1--F2--F3--........................B0======....B1======....B2======....B3======  4
   1  ....F0--F1--F2--................B0======F3--B1======....B2======....B3======........  3
   2  ........F0--F1--........B0======F2--B1======F3--B2======....B3======................  2
   3  ............F0--B0======F1--B1======F2--B2======F3--B3======........................  1
"""
    )


def test_slices_are_named_where_they_fit() -> None:
    text = render([timeline("seq1f1b", 2, 2, slices=2)], width=90, color=False)
    assert (
        "\n" + text.replace(IDLE, ":")
        == """
seq1f1b   2 devices, 2 microbatches, 2 slices each   makespan 7.5   bubble 20.0%   peak 1.5
time  0                   2                   4                   6                peak
   0  F0---F0.1-F1---::::::::::B0.1======F1.1-B0========:::::B1.1======B1========  1.5
   1  :::::F0---F0.1-B0.1======F1---B0========F1.1-B1.1======B1========::::::::::  1
"""
    )


def test_braided_ops_stand_under_each_other_and_leave_no_idle_dots() -> None:
    text = render([braided()], width=66, color=False)
    assert (
        "\n" + text.replace(IDLE, ".")
        == """
dualpipev   2 devices, 4 stages, 4 microbatches   makespan 13   bubble 7.7%   peak 2.5
time  0                   5                   10            peak
   0  F0F1F2F0I0W0F10F3---..3F2---3B2=..3F3---3B3=I2W2I3W3  2.5
                    3B1===  0B0===      0B1===
   1  ..F0F0F1F1F22B0=2F2---1F3---2F3---2B2=1B2=..I3I3W3W3  2.5
                      1B0===2B1===1B1===
"""
    )


def test_other_streams_stand_below_the_compute_lane() -> None:
    text = render([with_copies(O=1, L=1)], width=60, color=False)
    assert (
        "\n" + text.replace(IDLE, ".")
        == """
copies   1 device, 2 microbatches   makespan 6   bubble 0.0%   peak 2
  time  0             2             4               peak
     0  F0-----F1-----B1============B0============  2
0 copy  .......O0>>>>>L0<<<<<.....................
"""
    )


def test_idle_copies_take_no_time() -> None:
    lines = render([with_copies()], width=60, color=False).splitlines()
    assert lines[-1].split() == ["0", "copy", IDLE * len(lines[-2].split()[1])]


@pytest.mark.parametrize("sample", SAMPLES)
def test_colour_adds_nothing_but_colour(sample: str) -> None:
    drawn = [SAMPLES[sample]()]
    coloured = render(drawn, width=100, color=True)
    assert coloured != ESCAPE.sub("", coloured) == render(drawn, width=100, color=False)


@pytest.mark.parametrize("width", [1, 40, 80, 133, 250])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    drawn = [timeline("1f1b", 4, 8), timeline("seq1f1b", 4, 8, slices=4)]
    picture = [
        line
        for line in render(drawn, width=width, color=False).splitlines()
        if not line.startswith(("1f1b", "seq1f1b"))
    ]
    assert max(map(len, picture)) <= max(width, 40)


def test_ops_too_narrow_to_see_keep_their_share_of_the_line() -> None:
    drawn = timeline("1f1b", 16, 64)
    for lane in lanes(render([drawn], width=120, color=False)):
        scale = len(lane) / drawn.makespan
        assert abs(lane.count("F") - 64 * scale) <= 2
        assert abs(lane.count("B") - 128 * scale) <= 2


def test_two_schedules_share_one_axis() -> None:
    both = render(
        [timeline("1f1b", 4, 8), timeline("zb-v", 4, 8)], width=110, color=False
    ).splitlines()
    rulers = [line for line in both if line.startswith("time")]
    assert rulers[0] == rulers[1]
    assert len({len(lane) for lane in lanes("\n".join(both))}) == 1


def test_a_name_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in render([renamed("a\x1b[2Jb")], width=80, color=False)


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ShapeError, match="no timeline"):
        render([], width=80, color=False)

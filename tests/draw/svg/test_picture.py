"""A timeline as a picture: every op once, every coordinate exactly proportional to its time."""

import re
from collections import Counter
from fractions import Fraction
from xml.etree import ElementTree

import pytest

from draw.samples import SAMPLES, braided, plain, renamed, sliced, split, timeline
from penstock.draw.svg.picture import render
from penstock.draw.svg.style import keys
from penstock.errors import ShapeError
from penstock.sim import Timeline

SPACE = "{http://www.w3.org/2000/svg}"


def parse(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def ops_of(root: ElementTree.Element) -> list[tuple[str, ElementTree.Element]]:
    """Text and rectangle of every op."""
    found = []
    for rectangle in root.iter(f"{SPACE}rect"):
        title = rectangle.find(f"{SPACE}title")
        if title is not None and title.text:
            found.append((title.text.split(",")[0], rectangle))
    return found


def spread(rectangle: ElementTree.Element) -> tuple[Fraction, Fraction]:
    """Where a rectangle begins and how wide it is."""
    return Fraction(rectangle.attrib["x"]), Fraction(rectangle.attrib["width"])


def test_pictures_drawn_among_the_same_have_one_scale() -> None:
    short, long = plain(), sliced()
    drawn = [parse(render([one], among=[short, long])) for one in (short, long)]
    assert drawn[0].attrib["width"] == drawn[1].attrib["width"]
    together = ops_of(parse(render([short, long])))
    alone = [pair for root in drawn for pair in ops_of(root)]
    assert [spread(box) for _, box in alone] == [spread(box) for _, box in together]


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_op_appears_once(sample: str) -> None:
    drawn = SAMPLES[sample]()
    names = Counter(name for name, _ in ops_of(parse(render([drawn]))))
    assert names == Counter(str(op) for op in drawn.schedule.table.ops())


@pytest.mark.parametrize("sample", SAMPLES)
def test_coordinates_are_exactly_proportional_to_times(sample: str) -> None:
    drawn = SAMPLES[sample]()
    assert_proportional([drawn], ops_of(parse(render([drawn]))))


def test_two_schedules_share_one_scale() -> None:
    both = [plain(), sliced(), timeline("seq1f1b", 3, 2, slices=3)]
    assert_proportional(both, ops_of(parse(render(both))))


def assert_proportional(drawn: list[Timeline], ops: list[tuple[str, ElementTree.Element]]) -> None:
    spans = [
        (str(span.op), span.start, span.end)
        for one in drawn
        for span in sorted(one.spans(), key=lambda span: (span.device, span.stream))
    ]
    left = min(spread(rectangle)[0] for _, rectangle in ops)
    boxes = sorted((name, *spread(rectangle)) for name, rectangle in ops)
    times = sorted(spans)
    scale = sum(width for _, _, width in boxes) / sum(end - start for _, start, end in times)
    wanted = sorted(
        (name, left + start * scale, (end - start) * scale) for name, start, end in spans
    )
    assert boxes == wanted


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_look_that_is_used_is_defined(sample: str) -> None:
    text = render([SAMPLES[sample]()])
    used = {rectangle.attrib["class"].split()[1] for _, rectangle in ops_of(parse(text))}
    assert used == set(re.findall(r"^\.([A-Z]\d) ", text, re.M))
    patterns = set(re.findall(r"url\(#(.*?)\)", text))
    assert patterns == set(re.findall(r'<pattern id="(.*?)"', text))


def test_the_memory_curve_of_the_fullest_device_reaches_the_top() -> None:
    root = parse(render([plain()]))
    curves = [
        path.attrib["d"] for path in root.iter(f"{SPACE}path") if "memory" in path.get("class", "")
    ]
    heights = []
    for curve in curves:
        levels = [float(level) for level in re.findall(r"V([\d.]+)", curve)]
        heights.append((max(levels) - min(levels)) / 18)
    assert heights == [1, 3 / 4, 2 / 4, 1 / 4]


def test_a_braided_pair_shares_the_height_of_its_lane() -> None:
    boxes = dict(ops_of(parse(render([braided()]))))
    for upper, lower in braided().schedule.pairs:
        one, other = boxes[str(upper)].attrib, boxes[str(lower)].attrib
        assert (one["x"], one["width"]) == (other["x"], other["width"])
        assert float(one["y"]) + float(one["height"]) == float(other["y"])


def test_the_picture_has_a_name_and_a_description() -> None:
    root = parse(render([plain(), sliced()]))
    assert root.attrib["role"] == "img"
    words = {
        part.attrib["id"]: part.text
        for part in root
        if part.tag in (f"{SPACE}title", f"{SPACE}desc")
    }
    title, description = (words[key] for key in root.attrib["aria-labelledby"].split())
    assert title == "Timeline of 1f1b and seq1f1b"
    assert "1f1b: 4 devices, 4 microbatches, makespan 21, bubble 42.9%, peak 4" in str(description)


@pytest.mark.parametrize("name", ["a<b>&\"'", "a\x00\x1b\uffffb", "]]><script>"])
def test_any_name_leaves_the_picture_well_formed(name: str) -> None:
    parse(render([renamed(name)]))


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ShapeError, match="no timeline"):
        render([])


def test_a_long_legend_is_broken_into_lines() -> None:
    drawn = [SAMPLES["copies"](), split()]
    entries = keys(drawn, room=400)
    assert [key.kind for key in entries] == ["F", "B", "I", "W", "O", "L"]
    assert entries[-1].line > 0
    assert all(key.x + key.width <= 400 for key in entries)

"""What the page does, in a real browser."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clock import slowness
from draw.browser import CHROMIUM, FLAGS, constant, opened
from draw.samples import SAMPLES, plain, sliced, timeline
from loops import one_of
from penstock.core.graph import reads_of
from penstock.draw.style import colour
from penstock.sim import Timeline

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield chromium
        chromium.close()


def neighbours(drawn: Timeline, name: str) -> tuple[list[str], list[str]]:
    """Ops that an op reads from, and ops that read from it, as core derives them."""
    ops = [str(op) for op in drawn.schedule.table.ops()]
    graph = reads_of(drawn.schedule)
    edges = [(ops[r], ops[w]) for r, w in zip(graph.reader, graph.writer) if w >= 0]
    return (
        sorted({writer for reader, writer in edges if reader == name}),
        sorted({reader for reader, writer in edges if writer == name}),
    )


@pytest.mark.parametrize("sample", one_of(2, ((sample,) for sample in SAMPLES)))
def test_the_page_opens_silently_and_asks_for_nothing(
    browser: Any, tmp_path: Path, sample: str
) -> None:
    with opened(browser, tmp_path, [SAMPLES[sample]()]) as view:
        view.press("Tab", "Tab", "Tab", "Tab", "Tab", "ArrowRight", "+", "Escape", "ArrowLeft")
        view.page.mouse.wheel(0, -200)
        view.settle()
        assert view.said == []
        assert [url.split(":")[0] for url in view.asked] == ["file"]


def test_pointing_at_an_op_lights_up_what_it_reads_and_who_reads_it(
    browser: Any, tmp_path: Path
) -> None:
    drawn = sliced()
    row = 20
    name = str(drawn.schedule.table.op(row))
    with opened(browser, tmp_path, [drawn]) as view:
        dark = view.picture()
        view.point(row)
        assert view.tip().split()[0] == name
        assert (view.listed("reads"), view.listed("readers")) == neighbours(drawn, name)
        assert view.picture() != dark
        view.page.mouse.move(5, 5)
        assert view.picture() == dark


def test_what_an_op_reads_stays_bright_and_the_rest_fades(browser: Any, tmp_path: Path) -> None:
    forward, other, backward = 1, 2, 5
    bright = colour("F", 2)
    with opened(browser, tmp_path, [plain()]) as view:
        assert str(plain().schedule.table.op(backward)) == "0B1"
        assert [view.fill(row) for row in (forward, other)] == [bright, bright]
        view.point(backward)
        assert view.fill(forward) == bright
        assert view.fill(other) != bright
        view.point(forward)
        assert view.fill(other) != bright


def test_the_tooltip_says_when_where_and_what_for(browser: Any, tmp_path: Path) -> None:
    with opened(browser, tmp_path, [plain()]) as view:
        view.page.fill("#query", "2F1")
        view.press("Enter")
        tip = view.page.locator("#tip").inner_text()
    assert "2F1 forward" in tip
    assert "device 2, from 3 to 4, takes 1" in tip
    assert "waited for 1F1 on device 1, and 2F0 on device 2" in tip
    assert "1F1 (device 1, at 3): the input" in tip


def test_the_keyboard_moves_from_op_to_op(browser: Any, tmp_path: Path) -> None:
    with opened(browser, tmp_path, [plain()]) as view:
        view.page.focus("#fit")
        heard = []
        for key in ("Tab", "ArrowRight", "Tab", "ArrowDown", "Enter", "Shift+Tab"):
            view.press(key)
            heard.append(view.announced().split(",")[0])
        assert heard == ["0F0", "0F1", "0F2", "1F1", "0F1", "0F0"]
        assert "reads nothing" in view.announced()
        assert view.tip().startswith("0F0")


def test_escape_lets_go_and_tab_leaves_the_picture(browser: Any, tmp_path: Path) -> None:
    with opened(browser, tmp_path, [plain()]) as view:
        view.page.focus("#fit")
        view.press("Tab", "Escape")
        assert view.page.locator("#tip").is_hidden()
        assert view.page.evaluate("document.activeElement.id") == "picture"
        view.press("Shift+Tab")
        assert view.page.evaluate("document.activeElement.id") == "fit"


def test_zoom_and_pan_change_the_picture_and_fit_restores_it(browser: Any, tmp_path: Path) -> None:
    with opened(browser, tmp_path, [plain()]) as view:
        view.page.focus("#fit")
        view.press("Tab", "Escape")
        pictures = [view.picture()]
        for key in ("+", "ArrowRight", "-", "+", "+"):
            view.press(key)
            pictures.append(view.picture())
        assert all(one != other for one, other in pairwise(pictures))
        view.page.mouse.move(700, 300)
        view.page.mouse.wheel(0, -300)
        assert view.picture() != pictures[-1]
        view.press("0")
        view.page.mouse.move(5, 5)
        assert view.picture() == pictures[0]


def test_dragging_pans(browser: Any, tmp_path: Path) -> None:
    with opened(browser, tmp_path, [plain()]) as view:
        view.page.click("#in")
        before = view.picture()
        view.page.mouse.move(800, 600)
        view.page.mouse.down()
        view.page.mouse.move(650, 600)
        view.page.mouse.up()
        assert view.picture() != before
        assert view.page.locator("#tip").is_hidden()


@pytest.mark.parametrize(
    ("query", "found", "first"),
    [
        ("2F0", "1 of 1", "2F0"),
        ("2f0", "1 of 1", "2F0"),
        ("B3", "1 of 4", "0B3"),
        ("3B", "1 of 4", "3B0"),
        ("2", "1 of 8", "0F2"),
        ("9F9", "no such op", ""),
        ("what", "no such op", ""),
    ],
)
def test_search_finds_ops(browser: Any, tmp_path: Path, query: str, found: str, first: str) -> None:
    with opened(browser, tmp_path, [plain()]) as view:
        view.press("/")
        view.page.keyboard.type(query)
        view.press("Enter")
        assert view.page.locator("#found").inner_text() == found
        assert view.announced().split(",")[0] == first


def test_search_goes_on_to_the_next_match(browser: Any, tmp_path: Path) -> None:
    with opened(browser, tmp_path, [plain()]) as view:
        view.page.fill("#query", "B3")
        view.press("Enter", "Enter")
        assert view.page.locator("#found").inner_text() == "2 of 4"
        assert view.announced().startswith("1B3")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_colour_scheme(browser: Any, tmp_path: Path, scheme: str) -> None:
    with opened(browser, tmp_path, [plain()], color_scheme=scheme) as view:
        corner = view.page.evaluate(
            "[...document.getElementById('picture').getContext('2d').getImageData(2, 2, 1, 1).data]"
        )
    assert (sum(corner[:3]) > 3 * 128) == (scheme == "light")


def test_several_schedules_stand_on_one_axis(browser: Any, tmp_path: Path) -> None:
    both = [plain(), timeline("zb-v", 4, 8)]
    with opened(browser, tmp_path, both) as view:
        view.point(5)
        assert view.tip().split()[0] == str(both[0].schedule.table.op(5))
        assert "1f1b, device 0" in view.page.locator("#tip").inner_text()


def test_a_narrow_page_has_its_title_on_two_lines(browser: Any, tmp_path: Path) -> None:
    with opened(browser, tmp_path, [plain()]) as view:
        view.page.set_viewport_size({"width": 400, "height": 700})
        view.settle()
        area = view.page.locator("#picture").bounding_box()
        first = area["y"] + constant("AXIS") + constant("TITLE") + 6
        tips = []
        for y in (first, first + constant("TITLE_LINE")):
            view.page.mouse.move(area["x"] + constant("GUTTER") + 3, y)
            view.settle()
            tips.append(view.tip())
        assert tips[0] == ""
        assert tips[1].split()[0] == "0F0"


def test_the_picture_is_named_for_those_who_cannot_see_it(browser: Any, tmp_path: Path) -> None:
    with opened(browser, tmp_path, [plain()]) as view:
        named = view.page.get_by_role("application", name="makespan 21, bubble 42.9%, peak 4")
        assert named.get_attribute("id") == "picture"
        legend = view.page.get_by_role("list", name="Legend").get_by_role("listitem")
        assert legend.all_inner_texts() == ["F forward", "B full backward"]


@pytest.mark.matrix
def test_a_hundred_thousand_ops_open_within_five_seconds(browser: Any, tmp_path: Path) -> None:
    drawn = timeline("seq1f1b", 16, 400, slices=8)
    assert len(drawn.start) > 100_000
    with opened(browser, tmp_path, [drawn]) as view:
        assert view.seconds < 5 or view.seconds < 5 * slowness()  # of a usual machine
        view.page.fill("#query", "15B399.7")
        view.press("Enter")
        assert view.announced().startswith("15B399.7")
        assert view.said == []

"""A page in a real browser, with everything it said and asked for."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any

from penstock.draw.page.page import render
from penstock.sim import Timeline

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
WIDTH, HEIGHT = 1400, 900


class Opened:
    """An open page of timelines."""

    def __init__(self, page: Any, timelines: Sequence[Timeline]) -> None:
        self.page = page
        self.timelines = timelines
        self.seconds = 0.0
        """From asking for the page until it was painted."""
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def tip(self) -> str:
        """Heading of the tooltip: the op that is lit, or nothing."""
        headings: list[str] = self.page.locator("#tip h2:visible").all_inner_texts()
        return headings[0] if headings else ""

    def listed(self, heading: str) -> list[str]:
        """Ops listed in the tooltip under a heading."""
        items = self.page.locator(f"#tip h3.{heading} + ul > li").all_inner_texts()
        return sorted(item.split()[0] for item in items)

    def announced(self) -> str:
        """What a screen reader is told."""
        return str(self.page.locator("#said").inner_text())

    def picture(self) -> bytes:
        self.settle()
        return bytes(self.page.locator("#picture").screenshot())

    def settle(self) -> None:
        """Wait until everything asked for has been painted."""
        self.page.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def place(self, time: Fraction) -> tuple[float, float]:
        """Where the first device of the first timeline is at a time, when all is in sight."""
        room = WIDTH - constant("GUTTER") - constant("MARGIN")
        scale = room / float(max(one.makespan for one in self.timelines))
        return constant("GUTTER") + float(time) * scale, constant("AXIS") + constant("TITLE") + 6

    def point(self, row: int) -> None:
        """Move the pointer onto an op of the first device of the first timeline."""
        span = self.timelines[0].spans()[row]
        x, y = self.place((span.start + span.end) / 2)
        area = self.page.locator("#picture").bounding_box()
        self.page.mouse.move(area["x"] + x, area["y"] + y)
        self.settle()

    def fill(self, row: int) -> str:
        """Colour near the upper left corner of such an op, inside its outline."""
        x, y = self.place(self.timelines[0].spans()[row].start)
        pen = "document.getElementById('picture').getContext('2d')"
        data = self.page.evaluate(f"[...{pen}.getImageData({x + 5}, {y}, 1, 1).data]")
        return "#" + "".join(f"{channel:02x}" for channel in data[:3])


def constant(name: str) -> int:
    """A measure of the page's layout."""
    text = files("penstock.draw.page").joinpath("page_view.js").read_text(encoding="utf-8")
    found = re.search(rf"const {name} = (\d+);", text)
    assert found, name
    return int(found[1])


@contextmanager
def opened(
    browser: Any, folder: Path, timelines: Sequence[Timeline], **context: Any
) -> Iterator[Opened]:
    """Write the page, open it, close it."""
    path = folder / "page.html"
    path.write_text(render(timelines), encoding="utf-8")
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, **context)
    view = Opened(page, timelines)
    began = time.perf_counter()
    page.goto(path.as_uri())
    view.settle()
    view.seconds = time.perf_counter() - began
    try:
        yield view
    finally:
        page.close()

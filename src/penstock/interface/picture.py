"""A picture that shows itself: as text in a terminal, drawn in a notebook, or in a file.

The layers below draw timelines, and a schedule has no times. Who looks at a schedule wants to see
it at the prices of the papers, so it is simulated at unit costs first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.core.schedule import Schedule
from penstock.display import Displayed
from penstock.draw import render_as
from penstock.draw.terminal import render, render_excerpt
from penstock.errors import ShapeError, shown
from penstock.files import save_text
from penstock.sim import simulate
from penstock.sim.timeline import Timeline

TEXT_COLUMNS = 100
"""Columns of a picture in text."""
LINES_SHOWN = 64
"""Lines of a timeline that a prompt or a notebook shows."""

_plain = partial(render, width=TEXT_COLUMNS, color=False)
ENDINGS: Mapping[str, Callable[[Sequence[Timeline]], str]] = {
    ".svg": partial(render_as, "svg"),
    ".html": partial(render_as, "html"),
    ".json": partial(render_as, "trace"),
    ".txt": _plain,
}
"""What a file holds, by the ending of its name: a picture, a page to zoom and hover in, a trace for
Chrome or Perfetto, or text."""


@dataclass(frozen=True, eq=False)
class Picture(Displayed):
    """Timelines under each other on one time axis."""

    timelines: tuple[Timeline, ...]

    def __repr__(self) -> str:
        return render_excerpt(self.timelines, width=TEXT_COLUMNS, lines=LINES_SHOWN).rstrip("\n")

    def text(self) -> str:
        """All of it as text."""
        return _plain(self.timelines)

    def svg(self) -> str:
        """All of it as one SVG picture."""
        return render_as("svg", self.timelines)

    def save(self, path: str | Path) -> None:
        """Write it to a file: .svg, .html (a page to zoom and hover in), .json (a trace for Chrome
        or Perfetto) or .txt."""
        ending = Path(path).suffix
        if ending not in ENDINGS:
            raise ShapeError(
                f"the ending {shown(ending)} is that of no picture",
                hint=f"give a path that ends in one of: {', '.join(ENDINGS)}",
            )
        save_text(path, ENDINGS[ending](self.timelines))


def draw(first: Schedule | Timeline, *others: Schedule | Timeline) -> Picture:
    """A picture of timelines, or of schedules at unit costs, under each other on one time axis.

    >>> from penstock.schedules import build
    >>> str(draw(build("1f1b", devices=2, microbatches=2))).splitlines()[0]
    '1f1b   2 devices, 2 microbatches   makespan 9   bubble 33.3%   peak 2'
    """
    return Picture(tuple(at_unit_costs(each) for each in (first, *others)))


def at_unit_costs(each: Schedule | Timeline) -> Timeline:
    """A timeline as it is, a schedule at unit costs."""
    return each if isinstance(each, Timeline) else simulate(each)

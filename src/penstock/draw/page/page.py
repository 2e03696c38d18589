"""Timelines as one page to explore: zoom, pan, light up what an op reads and who reads it.

The page is a single file that needs no network and no build step. Its parts are plain files next to
this one: the frame (page.html), the style (page.css) and the script, in the order of `SCRIPTS`.
"""

import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from penstock.core.buffers import BUFFERS
from penstock.core.rules import NAMES
from penstock.draw.axis import axis_of
from penstock.draw.page.columns import columns, kind_looks
from penstock.draw.style import PATTERNS
from penstock.draw.words import summary_words, title_words
from penstock.sim.timeline import Timeline

SCRIPTS = (
    "page_data.js",
    "page_view.js",
    "page_paint.js",
    "page_frame.js",
    "page_light.js",
    "page.js",
)


def render(timelines: Sequence[Timeline], note: str = "") -> str:
    """One self-contained page with all timelines on one time axis, and a note above them."""
    axis_of(timelines)  # refuses an empty list
    parts = {
        "title": escape(title_words(timelines)),
        "note": escape(note),
        "label": escape(summary_words(timelines)),
        "style": _file("page.css"),
        "data": _data(timelines),
        "script": "\n".join(map(_file, SCRIPTS)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda slot: parts[slot[1]], _file("page.html"))


def _file(name: str) -> str:
    return files("penstock.draw.page").joinpath(name).read_text(encoding="utf-8")


def _data(timelines: Sequence[Timeline]) -> str:
    data = {
        "kinds": kind_looks(),
        "patterns": PATTERNS,
        "buffers": [*(BUFFERS[name].text for name in NAMES), "order only"],
        "timelines": [columns(timeline) for timeline in timelines],
    }
    # A name may hold anything; `</script>` in it must not end the script element.
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")

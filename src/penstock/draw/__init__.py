"""Pictures of timelines: text, SVG, a page to explore, a trace for viewers."""

from collections.abc import Sequence
from importlib import import_module

from penstock.sim.timeline import Timeline

__all__ = ["PICTURES", "render_as"]

PICTURES = {
    "svg": "penstock.draw.svg.picture",
    "html": "penstock.draw.page.page",
    "trace": "penstock.draw.trace",
}
"""Formats of pictures, and the modules that render them."""


def render_as(picture: str, timelines: Sequence[Timeline]) -> str:
    """Timelines in one of the formats; its module is loaded only when it is wanted."""
    text: str = import_module(PICTURES[picture]).render(timelines)
    return text

"""What a notebook shows of a schedule, a timeline or a picture: drawn whole where it is small.

A cell that holds thousands of rectangles makes a notebook slow and its file large. So above some
number of ops each line of the picture is text, with a letter for what takes most of the time there.
"""

from base64 import b64encode
from collections.abc import Sequence
from html import escape

from penstock.check import check, explain
from penstock.core.schedule import Schedule
from penstock.display import Displayed
from penstock.draw import render_as
from penstock.draw.terminal import render_excerpt
from penstock.draw.words import summary_words
from penstock.interface.picture import LINES_SHOWN, TEXT_COLUMNS, Picture, at_unit_costs
from penstock.sim.timeline import Timeline

OPS_DRAWN = 800
"""Ops up to which each is drawn; that many take about 300 kB."""
OPS_TIMED = 1_000_000
"""Ops up to which a schedule is simulated in order to be shown, which takes a second."""


def html(value: Displayed) -> str | None:
    """What a notebook is given; None where the `repr` says enough."""
    if isinstance(value, Picture):
        return _picture(value.timelines)
    if isinstance(value, Schedule):
        return _schedule(value)
    return _picture((value,)) if isinstance(value, Timeline) else None


def _schedule(schedule: Schedule) -> str | None:
    """At unit costs; a schedule that cannot run has no times, but findings."""
    if len(schedule.table) > OPS_TIMED:
        return None
    report = check(schedule)
    if not report.proven:
        return _text(f"{schedule!r}\n\n{explain(schedule, report)}")
    return _picture((at_unit_costs(schedule),))


def _picture(timelines: Sequence[Timeline]) -> str:
    ops = sum(len(timeline.schedule.table) for timeline in timelines)
    if ops > OPS_DRAWN:
        text = render_excerpt(timelines, width=TEXT_COLUMNS, lines=LINES_SHOWN)
        return _text(
            f"{text}\n{ops:,} ops, which are not shown one by one, as up to {OPS_DRAWN} would be; "
            'penstock.draw(...).save("picture.html") shows them all'
        )
    drawn = b64encode(render_as("svg", timelines).encode()).decode()
    # An image of its own: a style sheet inside the page would apply to the whole notebook.
    return (
        f'<div style="overflow-x: auto"><img style="max-width: none" '
        f'alt="{escape(summary_words(timelines))}" src="data:image/svg+xml;base64,{drawn}"></div>'
    )


def _text(text: str) -> str:
    return f'<pre style="overflow-x: auto; line-height: 1.25">{escape(text)}</pre>'

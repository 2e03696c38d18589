"""`penstock compare`: several schedules in one table and one picture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import typer

from penstock.cli._exposed import milliseconds
from penstock.cli._fit import resolve_all
from penstock.cli._flat import flat
from penstock.cli._mesh import ModelFlags, simulate_on_mesh
from penstock.cli._output import emit, emit_json, emit_table, has_color, note, width
from penstock.cli._pictures import Pictures, Width, destinations, write_pictures
from penstock.cli._record import plain, timeline_record
from penstock.cli._request import AsJson, PriceFlags, Request, Targets
from penstock.cli._variation import Variation, VariationFlags
from penstock.draw import terminal
from penstock.draw.units import in_units
from penstock.draw.words import number, percent
from penstock.sim import simulate
from penstock.sim.timeline import Timeline

ShownColumns = dict[str, tuple[Callable[[Timeline], Fraction], Callable[[Any], str]]]
COLUMNS: ShownColumns = {
    "makespan": (lambda timeline: timeline.makespan, number),
    "span": (lambda timeline: timeline.span, number),
    "bubble": (lambda timeline: timeline.bubble_makespan, percent),
    "peak": (lambda timeline: max(timeline.peak), number),
}
"""What is compared: how it is read and how it is written. Less is better in every column."""
MODEL_COLUMNS: ShownColumns = {
    "makespan ms": (lambda timeline: timeline.makespan, milliseconds),
    "span ms": (lambda timeline: timeline.span, milliseconds),
    "bubble": COLUMNS["bubble"],
    "peak MiB": (lambda timeline: max(timeline.peak), lambda size: f"{float(size) / 2**20:,.1f}"),
}
"""The same where a model gives seconds and bytes."""


@dataclass(frozen=True)
class ComparedSteps(ModelFlags, VariationFlags):
    """What is trained, on what, and with which other times than planned."""


PLAIN_STEPS = ComparedSteps()


def register(app: typer.Typer) -> None:
    app.command("compare")(flat(compare))


def compare(
    targets: Targets,
    request: Request,
    prices: PriceFlags,
    pictures: Pictures,
    step: ComparedSteps = PLAIN_STEPS,
    columns: Width = None,
    as_json: AsJson = False,
) -> None:
    """Simulate several schedules and draw them on one time axis.

    -v, -k and -o go to the schedules that take them. The smallest value of a column has a *. With
    --model times are those of a model, with --profile on a machine that was measured. With --jitter
    95 % of the draws end by the time shown, with --straggler it is that of the device whose
    slowness costs the most.
    """
    files = destinations(pictures, as_json=as_json)
    step.refuse_without_model()
    if step.model:
        step.refuse_prices(prices)
    cost = prices.cost()
    schedules, notes = resolve_all(targets, request, cost)
    if step.model:
        timelines = [simulate_on_mesh(schedule, step).timeline for schedule in schedules]
    else:
        timelines = [simulate(schedule, cost) for schedule in schedules]
    varied = [Variation.of(timeline, step) for timeline in timelines]
    drawn = in_units(timelines) if step.model else timelines
    for line in notes:
        note(line)
    if files.pop("json", None):
        emit_json(records(timelines, varied))
    elif not files:
        more = varied[0].ratios() if varied else ()
        shown = MODEL_COLUMNS if step.model else COLUMNS
        emit_table(("name", "ops", *shown, *more, "ratio"), _rows(timelines, varied, shown))
        emit("\n" + terminal.render(drawn, width=columns or width(), color=has_color()))
    write_pictures(files, drawn)


def records(timelines: Sequence[Timeline], varied: Sequence[Variation]) -> list[dict[str, Any]]:
    """The fields of `simulate` for each, with its makespan as a ratio to the first one's."""
    return [
        {**timeline_record(timeline), "ratio": plain(ratio), **found.record()}
        for timeline, ratio, found in zip(timelines, _ratios(timelines), varied)
    ]


def _ratios(timelines: Sequence[Timeline]) -> list[Fraction]:
    first = timelines[0].makespan
    return [timeline.makespan / first if first else Fraction(1) for timeline in timelines]


def _rows(
    timelines: Sequence[Timeline], varied: Sequence[Variation], shown: ShownColumns
) -> list[tuple[str, ...]]:
    time = next(iter(shown.values()))[1]
    columns: list[tuple[Sequence[Fraction | float], Callable[[Any], str]]] = [
        ([read(timeline) for timeline in timelines], word) for read, word in shown.values()
    ]
    for ratios in zip(*(found.ratios().values() for found in varied)):
        times = [ratio * float(line.makespan) for ratio, line in zip(ratios, timelines)]
        columns.append((times, time))
    cells = [_column(values, word) for values, word in columns]
    names = [timeline.name for timeline in timelines]
    counts = [f"{len(timeline.schedule.table):,}" for timeline in timelines]
    parts = [f"{float(ratio):.3f}" for ratio in _ratios(timelines)]
    return list(zip(names, counts, *cells, parts))


def _column(values: Sequence[Fraction | float], word: Callable[[Any], str]) -> list[str]:
    """One column, with a star at its least value and a space in its place elsewhere."""
    return [word(value) + ("*" if value == min(values) else " ") for value in values]

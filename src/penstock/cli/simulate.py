"""`penstock simulate`: what a schedule costs, in time and in memory."""

from collections import Counter

import typer

from penstock.cli._flat import flat
from penstock.cli._output import emit, emit_json, emit_table
from penstock.cli._record import timeline_record
from penstock.cli._request import AsJson, PriceFlags, Request, Target, resolve
from penstock.draw.words import count_of, number, percent, size_words
from penstock.sim import simulate
from penstock.sim.path import critical_path
from penstock.sim.timeline import Timeline

PATH_UP_TO = 200_000
"""Ops up to which the critical path is worked out: walking it back takes time for each op."""


def register(app: typer.Typer) -> None:
    app.command("simulate")(flat(simulate_one))


def simulate_one(
    target: Target, request: Request, prices: PriceFlags, as_json: AsJson = False
) -> None:
    """Simulate a schedule: makespan, bubble, work and peak memory of each device."""
    cost = prices.cost()
    timeline = simulate(resolve(target, request, cost), cost)
    if as_json:
        emit_json(timeline_record(timeline))
    else:
        _print(timeline)


def _print(timeline: Timeline) -> None:
    schedule = timeline.schedule
    emit(f"{timeline.name}: {size_words(schedule.shape)}, {count_of(len(schedule.table), 'op')}")
    emit(
        f"makespan {number(timeline.makespan)}, bubble {percent(timeline.bubble_makespan, 2)}; "
        f"span {number(timeline.span)}, bubble {percent(timeline.bubble_span, 2)}"
    )
    if len(schedule.table) <= PATH_UP_TO:
        emit(f"critical path: {_path(timeline)}")
    emit("")
    rows = [
        (str(device), number(work), number(peak))
        for device, (work, peak) in enumerate(zip(timeline.work, timeline.peak))
    ]
    emit_table(("device", "work", "peak"), rows)


def _path(timeline: Timeline) -> str:
    """What the chain of ops that makes up the makespan consists of."""
    path = critical_path(timeline)
    kinds = Counter(span.op.kind for span in path)
    moving = timeline.makespan - sum(span.end - span.start for span in path)
    ops = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"{count_of(len(path), 'op')} ({ops}), {number(moving)} in transfers"

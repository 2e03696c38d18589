"""`penstock simulate`: what a schedule costs, in time and in memory."""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import typer

from penstock.cli._exposed import (
    EXPOSED_HEAD,
    exposed_record,
    exposed_rows,
    exposed_words,
    mesh_words,
    milliseconds,
)
from penstock.cli._flat import flat
from penstock.cli._mesh import NO_MODEL, ModelFlags, simulate_on_mesh
from penstock.cli._output import emit, emit_json, emit_table
from penstock.cli._record import timeline_record
from penstock.cli._request import AsJson, PriceFlags, Request, Target, resolve
from penstock.cli._variation import NO_VARIATION, Variation, VariationFlags
from penstock.draw.words import count_of, number, percent, size_words
from penstock.sim import simulate
from penstock.sim.path import critical_path
from penstock.sim.timeline import Timeline

PATH_UP_TO = 200_000
"""Ops up to which the critical path is worked out: walking it back takes time for each op."""


def register(app: typer.Typer) -> None:
    app.command("simulate")(flat(simulate_one))


def simulate_one(
    target: Target,
    request: Request,
    prices: PriceFlags,
    on: ModelFlags = NO_MODEL,
    variation: VariationFlags = NO_VARIATION,
    as_json: AsJson = False,
) -> None:
    """Simulate a schedule: makespan, bubble, work and peak memory of each device.

    With --model times are seconds and memory is bytes; with --profile they are those of a machine
    that was measured, of a whole step with its update. With --mesh a device is a cell of ranks, and
    what these send each other is simulated too: how long it takes, and what of it is exposed, which
    is not hidden behind computing. --jitter and --straggler say what a step takes with other times
    than planned.
    """
    on.refuse_without_model()
    if on.model:
        _simulate_model(target, request, prices, on, variation, as_json=as_json)
        return
    cost = prices.cost()
    timeline = simulate(resolve(target, request, cost), cost)
    varied = Variation.of(timeline, variation)
    if as_json:
        emit_json({**timeline_record(timeline), **varied.record()})
    else:
        _print(timeline, varied)


def _simulate_model(
    target: str,
    request: Request,
    prices: PriceFlags,
    on: ModelFlags,
    variation: VariationFlags,
    *,
    as_json: bool,
) -> None:
    on.refuse_prices(prices)
    found = simulate_on_mesh(resolve(target, request), on)
    timeline = found.timeline
    varied = Variation.of(timeline, variation)
    if as_json:
        emit_json({**exposed_record(found, on), **varied.record()})
        return
    _print_head(timeline)
    emit(mesh_words(on, timeline.schedule.shape.devices))
    _print_times(timeline, varied, lambda value: f"{milliseconds(value)} ms")
    emit(f"{exposed_words(found)}\n\nms of one rank of each device")
    emit_table(EXPOSED_HEAD, exposed_rows(found))


def _print(timeline: Timeline, varied: Variation) -> None:
    _print_head(timeline)
    _print_times(timeline, varied, number)
    emit("")
    rows = [
        (str(device), number(work), number(peak))
        for device, (work, peak) in enumerate(zip(timeline.work, timeline.peak))
    ]
    emit_table(("device", "work", "peak"), rows)


def _print_head(timeline: Timeline) -> None:
    schedule = timeline.schedule
    emit(f"{timeline.name}: {size_words(schedule.shape)}, {count_of(len(schedule.table), 'op')}")


def _print_times(timeline: Timeline, varied: Variation, words: Callable[[Fraction], str]) -> None:
    emit(
        f"makespan {words(timeline.makespan)}, bubble {percent(timeline.bubble_makespan, 2)}; "
        f"span {words(timeline.span)}, bubble {percent(timeline.bubble_span, 2)}"
    )
    if len(timeline.schedule.table) <= PATH_UP_TO:
        emit(f"critical path: {_path(timeline, words)}")
    for line in varied.lines():
        emit(line)


def _path(timeline: Timeline, words: Callable[[Fraction], str]) -> str:
    """What the chain of ops that makes up the makespan consists of."""
    path = critical_path(timeline)
    kinds = Counter(span.op.kind for span in path)
    moving = timeline.makespan - sum(span.end - span.start for span in path)
    ops = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return f"{count_of(len(path), 'op')} ({ops}), {words(moving)} in transfers"

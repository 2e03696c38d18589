"""The words of the report, and its picture: what a reader should take away from a run.

Nothing here runs or reads anything, so that a report can be made from any run's figures.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from penstock.draw.table import render_table
from penstock.sim.timeline import Settled, Timeline
from penstock.train.report.loss_curve import curve

SHOWN_MEAN = 10
"""Steps over which a loss is a mean: single steps jump about."""


class Compared(NamedTuple):
    """One schedule: what was predicted, and what was measured."""

    name: str
    predicted: Timeline
    """As if every process had a core or a GPU of its own, from the time that its ops took; with the
    bytes that the step adds on each device."""
    shared: Fraction | None
    """Seconds predicted with the cores that there are, where they are fewer than processes."""
    measured: Timeline

    @property
    def peak(self) -> int:
        """The most that a step added on any device."""
        return max(int(peak) for peak in self.measured.peak)


class Ran(NamedTuple):
    """What a run leaves behind."""

    folder: Path
    losses: Sequence[float]
    tokens: int
    seconds: Sequence[float]
    """Of each step that was timed."""
    processes: int
    cores: int
    slices: int
    replans: bool
    """Whether the learning rate of further steps depends on whether it is planned anew."""
    checkpoint: Path
    export: str
    """Where the exported weights are; empty where there are none."""


def drawn(found: Compared) -> list[Timeline]:
    """Predicted and measured for a picture, in seconds and megabytes."""
    pair = {"predicted": found.predicted, "measured": found.measured}
    return [
        replace(
            timeline,
            schedule=replace(timeline.schedule, name=f"{found.name}, {what} (seconds, MB)"),
            grain=timeline.grain / 10**6,
            details=Settled.of(timeline),
        )
        for what, timeline in pair.items()
    ]


def words(ran: Ran, found: Sequence[Compared], left_out: Sequence[str] = ()) -> str:
    """The report as people read it; `left_out` says which schedules it is not compared with."""
    parts = [learnt(ran), time_table(ran, found), memory_table(found), *_verdicts(found)]
    parts += ["".join(f"{line}\n" for line in left_out)] if left_out else []
    return "\n".join([*parts, _places(ran), _next_steps(ran)])


def learnt(ran: Ran) -> str:
    """From which loss to which, how fast, and the curve between."""
    if not ran.losses or not ran.seconds:
        return f"{ran.checkpoint} is complete: no step was left to train\n"
    first, last = (mean(part) for part in (ran.losses[:SHOWN_MEAN], ran.losses[-SHOWN_MEAN:]))
    count = len(ran.losses)
    pace = ran.tokens / count * len(ran.seconds) / sum(ran.seconds)
    return (
        f"loss {first:.3f} -> {last:.3f} (means of {min(SHOWN_MEAN, count)} steps) after {count} "
        f"steps, {ran.tokens:,} tokens; {pace:,.0f} tokens/s\n{curve(ran.losses)}"
    )


def time_table(ran: Ran, found: Sequence[Compared]) -> str:
    """Seconds of a step, predicted and measured."""
    if any(each.shared is None for each in found):
        heads, rows = ["schedule", "predicted", "bubble", "measured"], map(_times, found)
        return "seconds of a step, predicted from the times of its ops\n" + _table(heads, [*rows])
    heads = ["schedule", "a core each", "bubble", f"{ran.cores} cores", "measured"]
    return (
        f"seconds of a step, predicted with a core for each process and with the {ran.cores} here\n"
        f"{_table(heads, [_times(each) for each in found])}"
        f"{ran.processes} processes share {ran.cores} cores: no order of the work can save time "
        "here, only memory\n"
    )


def _times(each: Compared) -> list[str]:
    """A row: the prediction with the cores that there are is left out where it is not needed."""
    predicted, shared = each.predicted, each.shared
    return [
        each.name,
        f"{float(predicted.makespan):.3f}",
        f"{float(predicted.bubble_makespan):.1%}",
        *([] if shared is None else [f"{float(shared):.3f}"]),
        f"{float(each.measured.makespan):.3f}",
    ]


def memory_table(found: Sequence[Compared]) -> str:
    """Megabytes that a step adds on each device, predicted and measured."""
    rows = []
    for each in found:
        for what, timeline in (("predicted", each.predicted), ("measured", each.measured)):
            rows.append((each.name, what, *(f"{int(peak) / 1e6:.2f}" for peak in timeline.peak)))
    devices = found[0].predicted.schedule.shape.devices
    heads = ("schedule", "", *(f"device {device}" for device in range(devices)))
    return "peak memory of a step in MB, beside weights and optimizer\n" + _table(heads, rows)


def _verdicts(found: Sequence[Compared]) -> list[str]:
    """The run's schedule against each of the others, in a sentence."""
    first, *others = found
    return ["".join(_verdict(first, other) for other in others)] if others else []


def _verdict(one: Compared, other: Compared) -> str:
    memory = one.peak / other.peak
    time = float(one.predicted.makespan / other.predicted.makespan)
    return (
        f"{one.name} needs {memory:.2f} of the memory of {other.name} and, with a core or a GPU "
        f"for each process, {time:.2f} of its time\n"
    )


def _places(ran: Ran) -> str:
    lines = [
        f"timeline     {ran.folder / 'timeline.html'}, {ran.folder / 'trace.json'} for Perfetto",
        f"checkpoint   {ran.checkpoint}",
        *([f"safetensors  {ran.export}"] if ran.export else []),
        f"records      {ran.folder / 'metrics.jsonl'}, {ran.folder / 'timing.jsonl'}",
        f"this report  {ran.folder / 'report.txt'}",
    ]
    return "\n".join(lines) + "\n"


def _next_steps(ran: Ran) -> str:
    train, steps, slices = f"penstock train {ran.folder / 'config.toml'}", *_doubled(ran)
    tries = [(f"go on to step {steps}", f"{train} --set run.steps={steps}")]
    if ran.replans:
        anew = f"{tries[0][1]} --set optimizer.schedule_steps={steps}"
        tries.append(("plan the rate anew", anew))
    if ran.slices > 1:
        folder = f"{ran.folder}-{slices}"
        cut = f"--set pipeline.slices={slices} --set run.directory={folder}"
        if ran.export:
            cut += f" --set checkpoint.export={folder}/export"
        tries.append((f"cut into {slices} slices", f"{train} {cut}"))
    tries.append(("prove every schedule", "penstock verify --all"))
    width = max(len(what) for what, _ in tries)
    return "try next\n" + "".join(f"  {what:<{width}}  {command}\n" for what, command in tries)


def _doubled(ran: Ran) -> tuple[int, int]:
    """Steps and slices, twice as many as now."""
    return 2 * len(ran.losses), 2 * ran.slices


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return render_table(head, rows, color=False)

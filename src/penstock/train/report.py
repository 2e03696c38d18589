"""The report at the end of a run: what was learnt, and how the prediction and the machine compare.

Two steps are looked at after the last one, for the run's schedule and for those it is to be
compared with: all ranks take part, the first one writes.
"""

import os
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from penstock.core.schedule import Schedule
from penstock.cost.hardware import HARDWARE
from penstock.cost.profile import Profile
from penstock.cost.transformer import TransformerCost
from penstock.cost.workload import Workload
from penstock.draw import html, trace
from penstock.plan.memory import step_peaks
from penstock.run.build import build_engine
from penstock.run.look import Look, look
from penstock.run.optimizer import AdamW
from penstock.run.plan import RunPlan
from penstock.run.state import begin
from penstock.schedules import build
from penstock.sim import simulate
from penstock.sim.cores import makespan_on
from penstock.sim.timeline import Timeline
from penstock.train.curve import curve, table
from penstock.train.metrics import METRICS, read_metrics
from penstock.train.trainer import Trainer

SHOWN_MEAN = 10
"""Steps over which a loss is a mean: single steps jump about."""


class Compared(NamedTuple):
    """One schedule: what was predicted, and what was measured."""

    name: str
    predicted: Timeline
    """With a core for every rank, from the CPU time that its ops took."""
    shared: Fraction
    """Seconds predicted with the cores that there are."""
    measured: Timeline
    peaks: tuple[int, ...]
    """Predicted bytes that a step adds, by device."""


def report(trainer: Trainer) -> None:
    """Look, compare, write and say it."""
    batch = trainer.batch_of(trainer.train, trainer.samples)
    trainer.tracker.at = "looks at a step"
    looks = [(trainer.engine.plan, look(trainer.engine, batch))]
    for name in trainer.settings.log.compare:
        plan = _unsliced(trainer.engine.plan, name)
        other, transport = build_engine(
            plan, trainer.engine.mesh.replicas, AdamW(), trainer.engine.device
        )
        begin(other, trainer.settings.run.seed)
        looks.append((plan, look(other, batch)))
        transport.close()
    if trainer.engine.mesh.rank == 0:
        found = [compared(plan, seen) for plan, seen in looks if seen]
        trainer.voice.close()
        _write(trainer, found)


def _unsliced(plan: RunPlan, name: str) -> RunPlan:
    """The same model and batch under another schedule, whole sequences."""
    shape = plan.schedule.shape
    schedule = build(name, devices=shape.devices, microbatches=shape.microbatches)
    lengths = tuple((sum(ns),) for ns in plan.lengths)
    return RunPlan(plan.model, schedule, lengths, (), plan.dtype, plan.rows)


def compared(plan: RunPlan, seen: Look) -> Compared:
    """Predictions for a schedule from what a look at it has shown."""
    workload = Workload(plan.model, plan.lengths, tuple(map(len, plan.split)))
    sizes = TransformerCost(workload, next(iter(HARDWARE.values())))
    profile = Profile.of(plan.schedule, seen.cpu, sizes)
    return Compared(
        plan.schedule.name,
        _named(simulate(plan.schedule, profile), "predicted"),
        makespan_on(plan.schedule, profile, os.cpu_count() or 1),
        _named(seen.timeline, "measured"),
        tuple(step_peaks(plan.schedule, workload, plan.rows)),
    )


def _named(timeline: Timeline, what: str) -> Timeline:
    schedule = timeline.schedule
    shown = Schedule(f"{schedule.name}, {what}", schedule.shape, schedule.table)
    return Timeline(
        shown,
        timeline.end,
        timeline.tick,
        timeline.peak_levels,
        timeline.grain,
        timeline.details,
    )


def _write(trainer: Trainer, found: Sequence[Compared]) -> None:
    folder = Path(trainer.settings.run.directory)
    pair = [found[0].predicted, found[0].measured]
    (folder / "timeline.html").write_text(html.render(pair))
    (folder / "trace.json").write_text(trace.render(pair))
    text = words(trainer, found)
    (folder / "report.txt").write_text(text)
    print(text, flush=True)


def words(trainer: Trainer, found: Sequence[Compared]) -> str:
    """The report as people read it."""
    folder = Path(trainer.settings.run.directory)
    losses = [record["loss"] for record in read_metrics(folder / METRICS)]
    first, last = (mean(part) for part in (losses[:SHOWN_MEAN], losses[-SHOWN_MEAN:]))
    parts = [
        f"loss {first:.3f} -> {last:.3f} (means of {SHOWN_MEAN} steps), {len(losses)} steps",
        curve(losses),
        time_table(found),
        memory_table(found),
        _where(trainer),
    ]
    return "\n".join(parts)


def time_table(found: Sequence[Compared]) -> str:
    """Seconds of a step, predicted and measured."""
    cores = os.cpu_count() or 1
    rows = [
        (
            each.name,
            f"{float(each.predicted.makespan):.3f}",
            f"{float(each.predicted.bubble_makespan):.1%}",
            f"{float(each.shared):.3f}",
            f"{float(each.measured.makespan):.3f}",
        )
        for each in found
    ]
    heads = ("schedule", "one core each", "bubble", f"{cores} cores", "measured")
    return "seconds of a step\n" + table(heads, rows)


def memory_table(found: Sequence[Compared]) -> str:
    """Megabytes that a step adds on each device, predicted and measured."""
    rows = []
    for each in found:
        measured = [int(peak) for peak in each.measured.peak]
        for what, peaks in (("predicted", each.peaks), ("measured", measured)):
            rows.append((each.name, what, *(f"{peak / 1e6:.2f}" for peak in peaks)))
    heads = ("schedule", "", *(f"device {device}" for device in range(len(found[0].peaks))))
    return "peak memory of a step in MB, weights and optimizer apart\n" + table(heads, rows)


def _where(trainer: Trainer) -> str:
    settings, folder = trainer.settings, Path(trainer.settings.run.directory)
    lines = [
        f"timeline     {folder / 'timeline.html'}, {folder / 'trace.json'} (ui.perfetto.dev)",
        f"checkpoint   {trainer.checkpoints.folder / f'step-{trainer.done:08}'}",
    ]
    if settings.checkpoint.export:
        lines.append(f"safetensors  {settings.checkpoint.export}")
    lines.append(f"records      {folder / METRICS}, {folder / 'timing.jsonl'}")
    lines += [
        "",
        "try next: --set pipeline.slices=8, another pipeline.schedule of `penstock list`,",
        "          `penstock verify --all`, --set run.steps=500 (goes on from the checkpoint)",
    ]
    return "\n".join(lines) + "\n"

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

"""The report at the end of a run: what was learnt, and how the prediction and the machine compare.

Two steps are looked at after the last one, for the run's schedule and for those it is to be
compared with: all ranks take part, the first one writes.
"""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.core.schedule import Schedule
from penstock.cost.hardware import HARDWARE
from penstock.cost.profile import Profile
from penstock.cost.transformer import TransformerCost
from penstock.cost.workload import Workload
from penstock.data import Microbatch
from penstock.draw import trace
from penstock.draw.page import page
from penstock.files import save
from penstock.plan.memory import step_peaks
from penstock.run.observe.inspected_step import StepLook, look_at_step
from penstock.run.process.environment import read_place
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import build_engine
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from penstock.run.watchdog.position import Tracker
from penstock.schedules import registry
from penstock.sim import simulate
from penstock.sim.cores import makespan_on
from penstock.train.config.sections import PipelineSettings
from penstock.train.config.settings import Settings
from penstock.train.records.metrics import METRICS, TIMING, read_metrics
from penstock.train.report.compared import compared_schedules
from penstock.train.report.wording import Compared, Ran, drawn, words


class EndedRun(NamedTuple):
    """A run after its last step, as far as its report needs it."""

    settings: Settings
    engine: Engine
    tracker: Tracker
    batch: Sequence[Microbatch]
    """What the steps that are looked at are run on."""
    tokens: int
    checkpoint: Path
    """Where the last one is."""
    close: Callable[[], None]
    """Ends the records, so that the report is what is said last."""


def report(run: EndedRun) -> None:
    """Look, compare, write and say it."""
    run.tracker.at = "looks at a step"
    engine, settings = run.engine, run.settings
    looks = [(engine.plan, look_at_step(engine, run.batch))]
    for schedule in compared_schedules(settings, engine.mesh.devices):
        plan = _unsliced(engine.plan, schedule)
        other = build_engine(plan, engine.mesh.replicas, AdamW(), engine.device)
        other.tell(run.tracker)
        begin(other, settings.run.seed)
        looks.append((plan, look_at_step(other, run.batch)))
        other.close()
    if engine.mesh.rank == 0:
        ran = ran_by(run)
        cores = ran.cores if engine.device.type == "cpu" else ran.processes
        found = [compare_step(plan, seen, cores) for plan, seen in looks if seen]
        run.close()
        run.tracker.at = "writes its report"
        _write(ran, found)


def _unsliced(plan: StepPlan, schedule: Schedule) -> StepPlan:
    """The same model and batch under another schedule, whole sequences."""
    lengths = tuple((sum(ns),) for ns in plan.lengths)
    layout = Layout.of(plan.layout.model, schedule, plan.longest, dtype=plan.layout.dtype)
    return StepPlan(layout, schedule, lengths, plan.rows)


def compare_step(plan: StepPlan, seen: StepLook, cores: int) -> Compared:
    """Predictions for a schedule from what a look at it has shown."""
    workload = Workload(plan.layout.model, plan.lengths, tuple(map(len, plan.layout.split)))
    sizes = TransformerCost(workload, next(iter(HARDWARE.values())))
    profile = Profile.of(plan.schedule, seen.seconds, sizes)
    scarce = cores < plan.schedule.shape.devices
    return Compared(
        plan.schedule.name,
        simulate(plan.schedule, profile),
        makespan_on(plan.schedule, profile, cores) if scarce else None,
        seen.timeline,
        tuple(step_peaks(plan.schedule, workload, plan.rows)),
    )


def ran_by(run: EndedRun) -> Ran:
    """What the report says of the run itself; the cores of all machines are those of this one."""
    here, mesh = read_place(), run.engine.mesh
    folder = Path(run.settings.run.directory)
    machines = max(1, here.world // here.local_world)
    return Ran(
        folder,
        losses=[record["loss"] for record in read_metrics(folder / METRICS)],
        tokens=run.tokens,
        seconds=[record["seconds"] for record in read_metrics(folder / TIMING)],
        processes=mesh.devices * mesh.replicas,
        cores=machines * len(os.sched_getaffinity(0)),
        slices=_slices(run.settings.pipeline),
        replans=run.settings.optimizer.schedule != "constant",
        checkpoint=run.checkpoint,
        export=run.settings.checkpoint.export,
    )


def _slices(pipeline: PipelineSettings) -> int:
    """Those of a run whose slices a user can choose; a file has the ones it has."""
    return pipeline.slices if pipeline.schedule in registry() else 1


def _write(ran: Ran, found: Sequence[Compared]) -> None:
    pair = drawn(found[0])
    text = words(ran, found)
    save(ran.folder / "timeline.html", page.render(pair))
    save(ran.folder / "trace.json", trace.render(pair))
    save(ran.folder / "report.txt", text)
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), flush=True)

"""The report at the end of a run: what was learnt, and how the prediction and the machine compare.

Three steps are looked at after the last one, for the run's schedule and for those it is to be
compared with: all ranks take part, the first one writes. Another schedule has its weights at other
places, so an engine of its own runs it. For that the run's engine gives its memory back, and since
nothing is updated there are no moments: who had room for the run has room for the comparison. What
would not fit nevertheless, because it keeps more of a batch alive, is not run.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from penstock.core.schedule import Schedule
from penstock.cost.cell_workload import rank_workload, rank_workloads
from penstock.cost.hardware import HARDWARE
from penstock.cost.profile import Profile
from penstock.cost.transformer import TransformerCost
from penstock.cost.workload import Workload
from penstock.data import Microbatch
from penstock.draw import trace
from penstock.draw.page import page
from penstock.files import save_text
from penstock.plan.cell_memory import fullest_rank
from penstock.plan.communicators import with_communicators
from penstock.plan.host_memory import host_peaks, host_states
from penstock.plan.memory import Footprint, footprints
from penstock.plan.memory_by_class import ClassBytes, predicted_classes
from penstock.plan.receive_slots import with_slots
from penstock.run.comm.collective import add_up, over_nccl
from penstock.run.observe.device_workload import workload_of
from penstock.run.observe.inspected_step import StepLook, look_at_step
from penstock.run.observe.memory_meter import free_bytes
from penstock.run.process.environment import read_place
from penstock.run.program.layout import Layout
from penstock.run.program.sharded_schedule import schedule_for
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import build_engine
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import NoUpdate
from penstock.run.step.state import begin
from penstock.run.watchdog.position import Tracker
from penstock.schedules import registry
from penstock.sim import simulate
from penstock.sim.cores import makespan_on
from penstock.train.config.sections import PipelineSettings
from penstock.train.config.settings import Settings
from penstock.train.records.metrics import METRICS, PLANS, TIMING, read_metrics
from penstock.train.report.compared import compared_schedules
from penstock.train.report.gathered import gathered_stages
from penstock.train.report.outcome import Compared, Ran, RunOutcome
from penstock.train.report.profiled import profiled_step
from penstock.train.report.wording import drawn, words


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


def report(run: EndedRun) -> RunOutcome | None:
    """Look, compare and write; returns what is to be said, on the first rank."""
    run.tracker.at = "looks at a step"
    engine, settings = run.engine, run.settings
    looks, left_out = [(engine.plan, look_at_step(engine, run.batch))], list[str]()
    others = compared_schedules(settings, engine.mesh.devices)
    if others:
        engine.release()
    for schedule in others:
        plan = _unsliced(engine.plan, schedule)
        if refusal := _too_large(plan, run):
            left_out.append(refusal)
            continue
        looks.append((plan, _look_at(plan, run)))
    if engine.mesh.rank != 0:
        return None
    ran = ran_by(run)
    cores = ran.cores if engine.device.type == "cpu" else ran.processes
    found = [
        compare_step(plan, seen, cores / engine.mesh.replicas, engine.device)._replace(
            communication=[each.communication for each in _footprints(plan, engine)]
        )
        for plan, seen in looks
        if seen
    ]
    seen = looks[0][1]
    found[0] = found[0]._replace(
        kept=_kept(engine, seen), classes=_classes(engine, found[0], seen.classes if seen else ())
    )
    profiled, reason = profiled_step(settings, engine.plan)
    outcome = RunOutcome(ran, True, found, [*left_out, *reason], profiled)
    run.close()
    run.tracker.at = "writes its report"
    _write(outcome)
    return outcome


def _classes(
    engine: Engine, found: Compared, measured: Sequence[ClassBytes]
) -> list[tuple[ClassBytes, ClassBytes]]:
    """Bytes of each device by class, predicted and measured."""
    plan = engine.plan
    workload = fullest_rank(
        plan.schedule, workload_of(plan, engine.device), plan.layout.cell, plan.rows
    )
    peaks = [int(peak) for peak in found.predicted.peak]
    held = _own_footprints(engine)
    return [*zip(predicted_classes(plan.schedule, workload, plan.rows, held, peaks), measured)]


def _kept(engine: Engine, seen: StepLook | None) -> list[tuple[int, int]]:
    """Optimizer state on the host, predicted and measured, of the rank of each device that has
    most."""
    plan, states = engine.plan, engine.validation.states
    ranks = rank_workloads(workload_of(plan, engine.device), plan.layout.cell)
    each = [host_states(plan.schedule, one, engine.adam.host_stages, states) for one in ranks]
    return [*zip(map(max, zip(*each)), seen.kept)] if seen else []


def plain_outcome(run: EndedRun, *, finished: bool) -> RunOutcome | None:
    """What there is to say without a look at a step, on the first rank."""
    if run.engine.mesh.rank != 0:
        return None
    run.close()
    return RunOutcome(ran_by(run), finished)


def _look_at(plan: StepPlan, run: EndedRun) -> StepLook | None:
    """A step of another schedule, with initial weights: time and memory do not ask for values."""
    mesh = run.engine.mesh
    order = mesh.grid.order
    other = build_engine(plan, mesh.replicas, NoUpdate(), run.engine.device, order)
    other.tell(run.tracker)
    begin(other, run.settings.run.seed)
    try:
        return look_at_step(other, run.batch)
    finally:
        other.close()
        other.release()


def _too_large(plan: StepPlan, run: EndedRun) -> str:
    """Why a plan cannot be run on some rank for want of memory; the same words on all of them."""
    engine, mesh = run.engine, run.engine.mesh
    own = _own_footprints(engine)[mesh.device]
    other = _footprints(plan, engine)[mesh.device]
    # The host's allocator keeps what the run has given back; that of a GPU does not.
    kept = own.total if engine.device.type == "cpu" else 0
    said = torch.zeros(mesh.grid.ranks, 2, dtype=torch.float64)
    said[mesh.rank] = torch.tensor([other.looked_at, free_bytes(engine.device) + kept])
    with run.tracker.gathers("state their free memory"):
        add_up(said, mesh.world)
    for rank, (wanted, there) in enumerate(said.tolist()):
        if wanted > there:
            return (
                f"{plan.schedule.name} is not run for comparison: rank {rank} would need "
                f"{wanted / 1e9:.2f} GB and has {there / 1e9:.2f} GB"
            )
    return ""


def _own_footprints(engine: Engine) -> tuple[Footprint, ...]:
    """What the run itself needs on each device, with what its ranks share; also where its engine
    has given everything back."""
    plan, workload = engine.plan, _workload_here(engine.plan, engine)
    buffers = engine.sharding.buffers
    gathered = gathered_stages(schedule_for(plan.schedule, buffers)) if buffers else ()
    return footprints(
        plan.schedule,
        workload,
        plan.rows,
        owners=engine.owners,
        gathered=gathered,
        states=engine.validation.states,
        on_host=engine.adam.host_stages,
    )


def _footprints(plan: StepPlan, engine: Engine) -> tuple[Footprint, ...]:
    """What a plan needs on each device, exchanging as this engine does, where ranks share
    nothing."""
    mesh = engine.mesh
    found = footprints(plan.schedule, _workload_here(plan, engine), plan.rows)
    if not over_nccl(mesh.world, engine.device):
        return found
    return with_communicators(found, plan.program(mesh.replicas), mesh.replicas)


def _unsliced(plan: StepPlan, schedule: Schedule) -> StepPlan:
    """The same model and batch under another schedule, whole sequences."""
    lengths = tuple((sum(ns),) for ns in plan.lengths)
    like = plan.layout
    layout = Layout.of(like.model, schedule, plan.longest, dtype=like.dtype, cell=like.cell)
    return StepPlan(layout, schedule, lengths, plan.rows)


def compare_step(plan: StepPlan, seen: StepLook, cores: float, device: torch.device) -> Compared:
    """Predictions for a schedule from what a look at it has shown, with so many cores for each
    replica."""
    cell = plan.layout.cell
    workload = fullest_rank(plan.schedule, workload_of(plan, device), cell, plan.rows)
    sizes = TransformerCost(workload, next(iter(HARDWARE.values())))
    profile = Profile.of(plan.schedule, seen.seconds, sizes)
    share = cores / cell.ranks  # the ranks of a device compute at the same time
    scarce = share < plan.schedule.shape.devices
    return Compared(
        plan.schedule.name,
        with_slots(simulate(plan.schedule, profile), workload, plan.rows),
        makespan_on(plan.schedule, profile, share) if scarce else None,
        seen.timeline,
        host=[*zip(host_peaks(plan.schedule, workload, plan.rows), seen.host)],
    )


def _workload_here(plan: StepPlan, engine: Engine) -> Workload:
    """The part of it that this rank has."""
    return rank_workload(workload_of(plan, engine.device), plan.layout.cell, engine.mesh.place)


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
        processes=mesh.grid.ranks,
        plans=_plans(run.settings, folder),
        ranks_of_device=run.engine.layout.cell.ranks,
        cores=machines * len(os.sched_getaffinity(0)),
        slices=_slices(run.settings.pipeline),
        replans=run.settings.optimizer.schedule != "constant",
        checkpoint=run.checkpoint,
        export=run.settings.checkpoint.export,
    )


def _plans(settings: Settings, folder: Path) -> list[dict[str, Any]]:
    """What came into force; nothing where the plan is fixed."""
    return read_metrics(folder / PLANS) if settings.plan.policy != "fixed" else []


def _slices(pipeline: PipelineSettings) -> int:
    """Those of a run whose slices a user can choose; a file has the ones it has."""
    return pipeline.slices if pipeline.schedule in registry() else 1


def _write(outcome: RunOutcome) -> None:
    pair, folder = drawn(outcome.compared[0]), outcome.ran.folder
    save_text(folder / "timeline.html", page.render(pair))
    save_text(folder / "trace.json", trace.render(pair))
    save_text(folder / "report.txt", words(outcome))

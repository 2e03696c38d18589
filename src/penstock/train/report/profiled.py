"""What a profile says that a step of the run takes, as an estimate of the same layout has it."""

from dataclasses import replace
from pathlib import Path

from penstock.cluster.profile_file import MeasuredMachine, read_machine
from penstock.errors import PenstockError, ShapeError
from penstock.estimate.layout import BYTES_OF, TrainingLayout
from penstock.estimate.price import layout_cost
from penstock.estimate.step_schedule import step_of
from penstock.run.program.step_plan import StepPlan
from penstock.sim.play import play
from penstock.train.config.settings import Settings
from penstock.train.report.outcome import ProfiledStep


def profiled_step(settings: Settings, plan: StepPlan) -> tuple[ProfiledStep | None, list[str]]:
    """The prediction, or why there is none; nothing of both where no profile was given."""
    profile = settings.plan.profile
    if not profile:
        return None, []
    try:
        seconds = _seconds(settings, plan, read_machine(Path(profile)))
    except PenstockError as error:  # the run has its result, whatever a file says
        return None, [f"{profile} does not say what a step takes: {error.message}"]
    return ProfiledStep(profile, seconds), []


def _seconds(settings: Settings, plan: StepPlan, machine: MeasuredMachine) -> float:
    layout = _layout(settings, plan, machine)
    step = step_of(plan.schedule, layout, plan.lengths[0])
    done, tick = play(step.schedule, layout_cost(layout, step), "together")
    return float(int(done.end.max()) * tick)


def _layout(settings: Settings, plan: StepPlan, machine: MeasuredMachine) -> TrainingLayout:
    shape, model, mesh = plan.schedule.shape, plan.layout.model, settings.mesh.shape
    if len({*plan.lengths}) > 1:
        raise ShapeError("microbatches have different slices", hint="cut them alike")
    if model.element_bytes != BYTES_OF[machine.kernels.precision]:
        raise ShapeError(f"{machine.kernels.precision} was profiled", hint="profile again")
    ranks, tokens = mesh.ranks(shape.devices), sum(plan.lengths[0])
    links = replace(machine.cluster.machine, gpus=ranks)
    return TrainingLayout(
        model,
        replace(machine.cluster, gpus=ranks, machine=links),
        tokens,
        tokens * plan.rows * shape.microbatches * mesh.replicas,
        plan.schedule.name,
        mesh,
        shape.devices,
        rows=plan.rows,
        layers=plan.layout.layers,
        shard=settings.mesh.shard,
        fused_norm=machine.kernels.fused,
        precision=machine.kernels.precision,  # type: ignore[arg-type]
    )

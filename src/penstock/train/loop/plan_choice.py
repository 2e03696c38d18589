"""The policy that chooses the plans of a run, as the settings ask for it.

What cannot be met is refused before a process starts: a file has one order for one number of
microbatches, so it has no groups; ops that run together cannot be ordered one by one.
"""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from penstock.errors import ShapeError
from penstock.plan.adaptive import schedule_of_grouping
from penstock.plan.grouping import Grouping
from penstock.run.policies.adaptive_group import AdaptiveGroup
from penstock.run.policies.improving_order import ImprovingOrder
from penstock.run.policies.memory_room import MemoryRoom, room_of
from penstock.run.policies.policy import Fixed, PlanPolicy
from penstock.run.program.step_plan import StepPlan
from penstock.run.program.unsupported import refuse_beside_groups
from penstock.run.step.engine import Engine
from penstock.schedules import names_a_file
from penstock.train.config.plan_settings import PlanSettings
from penstock.train.config.settings import Settings
from penstock.train.loop.grouped_setup import group_planner
from penstock.train.loop.setup import RunSetup, layout_of

EVERY_GROUP = 8
"""Groups up to this size are all candidates; above, only doubled sizes are."""
ORDERS = "orders"
"""Folder of a run for orders that a solver has found."""


def refuse_policy(settings: Settings, setup: RunSetup) -> None:
    """Refuse a policy that has nothing to choose from."""
    policy, shape = settings.plan.policy, setup.schedule.shape
    if settings.data.policy == "flex":
        _refuse_one_size(settings, setup)
    if policy == "fixed":
        return
    if shape.devices == 1:
        raise ShapeError(
            f'plan.policy is "{policy}", but a pipeline of one device has one order',
            hint='set plan.policy to "fixed", or take more devices',
        )
    if policy == "adaptive":
        _refuse_no_groups(settings, setup)
    else:
        _refuse_fixed_order(setup)


def _refuse_one_size(settings: Settings, setup: RunSetup) -> None:
    if names_a_file(settings.pipeline.schedule):
        raise ShapeError(
            f'data.policy is "flex", but {settings.pipeline.schedule} is a file, which has one '
            "number of microbatches",
            hint="take a schedule of `penstock list`",
        )
    refuse_beside_groups(setup.schedule, settings.batch.rows)
    tensor = setup.mesh.cell.tensor
    group_planner(settings, setup.model.share(0, tensor) if tensor > 1 else setup.model)


def _refuse_no_groups(settings: Settings, setup: RunSetup) -> None:
    if names_a_file(settings.pipeline.schedule):
        raise ShapeError(
            f'plan.policy is "adaptive", but {settings.pipeline.schedule} is a file, which has '
            "one order",
            hint="take a schedule of `penstock list`, which has an order for every group",
        )
    if len(dict(setups(settings, setup))) == 1:
        raise ShapeError(
            f'plan.policy is "adaptive", but {settings.pipeline.schedule} has no groups with '
            f"batch.microbatches {settings.batch.microbatches}",
            hint="take more microbatches, or another schedule",
        )


def _refuse_fixed_order(setup: RunSetup) -> None:
    schedule = setup.schedule
    if schedule.pairs or schedule.loans or schedule.gangs or "O" in schedule.table.kinds:
        raise ShapeError(
            f'plan.policy is "improving", but {schedule.name} has pairs, loans, gangs or copies '
            "to the host, whose order belongs together",
            hint="begin with a schedule without them, such as one with forwards and backwards only",
        )


def first_plan(given: PlanSettings) -> str:
    """Why the plan of the start is in force.

    >>> first_plan(PlanSettings(policy="adaptive"))
    'the plan of the start; plan.policy is "adaptive", which looks every 10 steps'
    """
    return (
        f'the plan of the start; plan.policy is "{given.policy}", which looks every {given.every} '
        "steps"
    )


def policy_of(settings: Settings, engine: Engine, setup: RunSetup) -> PlanPolicy:
    """The policy of a run; all ranks ask for it together."""
    given = settings.plan
    if given.policy == "fixed":
        return Fixed()
    room, gain = room_of(engine, given.memory), Fraction(str(given.gain))
    if given.policy == "adaptive":
        return _adaptive(settings, engine, setup, room)
    folder = given.orders or str(Path(settings.run.directory) / ORDERS)
    return ImprovingOrder(room, Path(folder), gain, given.effort)


def _adaptive(
    settings: Settings, engine: Engine, setup: RunSetup, room: MemoryRoom
) -> AdaptiveGroup:
    """The groups that have room, each with the largest microbatches; the plan of the start is one
    of them."""
    found: dict[Grouping, StepPlan] = {}
    for way, other in setups(settings, setup):
        plan = StepPlan(engine.layout, other.schedule, other.lengths, way.size)
        dominated = any(each.group == way.group and each.size >= way.size for each in found)
        if not found or (not dominated and room.fits(plan)):
            found[way] = plan
    policy = AdaptiveGroup(found, Fraction(str(settings.plan.gain)))
    if len(found) == 1:
        policy.remarks.append("warning: no other group has room, so the plan will not change")
    return policy


def setups(settings: Settings, setup: RunSetup) -> Iterator[tuple[Grouping, RunSetup]]:
    """Every grouping of the batch that the schedule has, the one of the start first, then from
    large microbatches to small ones."""
    batch, processes = settings.batch, setup.mesh.ranks(setup.schedule.shape.devices)
    yield Grouping(1, batch.rows, batch.microbatches), setup
    for rows in sorted({batch.rows, *settings.plan.rows}, reverse=True):
        microbatches = batch.rows * batch.microbatches // rows
        for group in _groups(microbatches):
            way = Grouping(group, rows, microbatches)
            other = _setup_of(settings, processes, way)
            if other is not None and (group > 1 or rows != batch.rows):
                yield way, other


def _groups(microbatches: int) -> list[int]:
    """Sizes of a group.

    >>> _groups(20)
    [1, 2, 3, 4, 5, 6, 7, 8, 16, 20]
    """
    doubled = [2**power for power in range(microbatches.bit_length())]
    small = range(1, min(EVERY_GROUP, microbatches) + 1)
    return sorted({*small, *doubled, microbatches})


def _setup_of(settings: Settings, processes: int, way: Grouping) -> RunSetup | None:
    """The run with another grouping; None where the schedule has none such."""

    def base(microbatches: int) -> RunSetup:
        batch = settings.batch.model_copy(update={"microbatches": microbatches, "rows": way.size})
        changed = settings.model_copy(update={"batch": batch, "plan": PlanSettings()})
        return layout_of(changed, processes)

    try:
        first = base(-(-way.microbatches // way.group))
        schedule = schedule_of_grouping(lambda microbatches: first.schedule, way)
    except ShapeError:
        return None
    lengths = tuple(first.lengths[mb // way.group] for mb in range(way.microbatches))
    return RunSetup(first.model, schedule, lengths, first.layers, first.mesh)

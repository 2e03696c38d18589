"""A run whose plan is to be chosen: before its ranks start, and when they have."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from penstock.run.process.machine import this_machine
from penstock.run.process.rendezvous import Connection
from penstock.run.step.build import torch_device
from penstock.run.watchdog.position import Tracker
from penstock.train.auto_plan.agreed import changed_machine, plan_before_start, plan_of_ranks
from penstock.train.auto_plan.request import PlanRequest
from penstock.train.config.settings import Settings
from penstock.train.loop.before_start import on_host
from penstock.train.loop.run_lock import claim_run
from penstock.train.loop.setup import architecture


class PlannedRun(NamedTuple):
    """Settings with a whole plan, and what a person is told of how it came about."""

    settings: Settings
    notes: Sequence[str] = ()


def rank_count(settings: Settings) -> int:
    """Processes of a run for which nobody has said how many: those of the configuration, or, where
    the plan is to be chosen, one for each GPU or core."""
    if not settings.plan.auto or settings.pipeline.devices:
        return settings.mesh.shape.ranks(settings.pipeline.devices)
    if on_host(settings):
        return max(1, int(this_machine().cores))
    return torch.cuda.device_count()


def planned_before_start(settings: Settings, ranks: int, say: Callable[[str], None]) -> Settings:
    """The settings with a plan for so many ranks; as they are where they have one."""
    if not settings.plan.auto:
        return settings
    request = _request(settings, ranks)
    with claim_run(settings):
        plan = plan_before_start(request, Path(settings.run.directory), say)
    return plan.applied_to(settings)


def planned_by_ranks(settings: Settings, connection: Connection, tracker: Tracker) -> PlannedRun:
    """The same, on every rank of the run; what is to be said is said by the first."""
    if not settings.plan.auto:
        return PlannedRun(settings)
    folder = Path(settings.run.directory)
    request = _request(settings, connection.world)
    plan = plan_of_ranks(request, folder, connection, tracker)
    device = torch_device(settings.run.device, connection.place)
    notes = [*plan.lines, *changed_machine(plan, folder, device)]
    return PlannedRun(plan.applied_to(settings), notes)


def _request(settings: Settings, ranks: int) -> PlanRequest:
    device = "cpu" if on_host(settings) else "cuda"
    return PlanRequest(settings, architecture(settings), ranks, device)

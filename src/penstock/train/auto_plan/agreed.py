"""One decides, and all ranks take it: the plan of a run before its first step.

A launcher decides before it starts a rank, so that what cannot be met is refused at once; the first
rank finds its file. Ranks that somebody else has started measure together, and the first decides.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from penstock.errors import ShapeError
from penstock.files import save_text
from penstock.profiling.case import ProfileCase
from penstock.profiling.measure.run import made_on
from penstock.profiling.record import record_text
from penstock.run.comm.collective import tell_all
from penstock.run.process.rendezvous import Connection
from penstock.run.watchdog.position import Tracker
from penstock.train.auto_plan.choose import choose_plan, machine_facts
from penstock.train.auto_plan.chosen_plan import (
    PLAN_FILE,
    PROFILE_FILE,
    ChosenPlan,
    plan_differences,
    plan_from,
    read_plan,
    save_plan,
)
from penstock.train.auto_plan.quick_profile import (
    collectives_here,
    collectives_of_ranks,
    profile_here,
    quick_case,
)
from penstock.train.auto_plan.request import PlanRequest


def plan_before_start(request: PlanRequest, folder: Path, say: Callable[[str], None]) -> ChosenPlan:
    """The plan of a run whose ranks are still to be started."""
    kept, because = _kept(request, folder)
    if kept is not None:
        return kept
    if _measures(request):
        case = measured_case(request)
        say(f"plan.auto: measures this machine with {case.tokens:,} tokens of the model")
        record = profile_here(case, request.device, request.ranks)
        if request.ranks > 1:
            say(f"plan.auto: measures what {request.ranks} ranks send each other")
        record["collectives"] = collectives_here(request.device, request.ranks)
        _save_profile(record, folder)
    say("plan.auto: compares plans")
    return _chosen(request, folder, because)


def plan_of_ranks(
    request: PlanRequest, folder: Path, connection: Connection, tracker: Tracker
) -> ChosenPlan:
    """The same where the ranks are there already; all of them ask together."""
    place = connection.place
    if place.world != place.local_world:
        raise ShapeError(
            f"plan.auto measures one machine, but {place.world - place.local_world} of "
            f"{place.world} ranks are on others",
            hint="write a plan with `penstock plan --cluster FILE --save plan.toml`",
        )
    tracker.at, first = "chooses its plan", connection.rank == 0
    kept, because = _kept(request, folder) if first else (None, "")
    with tracker.gathers("hear of the plan of the run"):
        told = _told(kept)
    if told is not None:
        return told
    if _measures(request):
        _measure_together(request, folder, connection, tracker)
    chosen = _chosen(request, folder, because) if first else None
    with tracker.gathers("hear of the plan of the run"):
        found = _told(chosen)
    assert found is not None, "the first rank has chosen one, or has ended the run"
    return found


def _measure_together(
    request: PlanRequest, folder: Path, connection: Connection, tracker: Tracker
) -> None:
    """Kernels by the first rank, then collectives by all; the others wait for the first in them."""
    record: dict[str, Any] = {}
    if connection.rank == 0:
        tracker.at = "measures the machine"
        record = profile_here(measured_case(request), request.device, request.ranks)
    with tracker.gathers("measure what they send"):
        record["collectives"] = collectives_of_ranks(connection, request.device)
    if connection.rank == 0:
        _save_profile(record, folder)


def changed_machine(plan: ChosenPlan, folder: Path, device: torch.device) -> list[str]:
    """What to say where the machine is not the one that the plan was chosen on, or that the profile
    of the user is of."""
    changed = plan_differences(plan.machine, machine_facts({"made": made_on(device)}))
    if not changed:
        return []
    if profile := plan.asked["profile"]:
        return [
            f"warning: {profile} is a profile of another machine: {', '.join(changed)}; without "
            "plan.profile this machine is measured"
        ]
    return [
        f"warning: the plan was chosen on another machine: {', '.join(changed)}; it is kept, and "
        f"without {folder / PLAN_FILE} another one is chosen"
    ]


def measured_case(request: PlanRequest) -> ProfileCase:
    """What is measured for a request."""
    length = request.settings.batch.length
    return quick_case(request.model, length, request.precision, request.device)


def _measures(request: PlanRequest) -> bool:
    return not request.settings.plan.profile


def _kept(request: PlanRequest, folder: Path) -> tuple[ChosenPlan | None, str]:
    """The plan of an earlier start, or why there is none that serves."""
    found = read_plan(folder)
    if found is None:
        return None, ""
    changed = plan_differences(found.asked, request.record())
    return (None, ", ".join(changed)) if changed else (found, "")


def _chosen(request: PlanRequest, folder: Path, because: str) -> ChosenPlan:
    profile = Path(request.settings.plan.profile or folder / PROFILE_FILE)
    plan = choose_plan(request, profile, because)
    save_plan(plan, folder)
    return plan


def _save_profile(record: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_text(folder / PROFILE_FILE, record_text(record))


def _told(plan: ChosenPlan | None) -> ChosenPlan | None:
    """The plan of the first rank, at all of them."""
    world = distributed.group.WORLD if distributed.is_initialized() else None
    text = tell_all("" if plan is None else plan.text(), world)
    return plan_from(json.loads(text), PLAN_FILE) if text else None

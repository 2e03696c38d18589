"""What can be wrong with modules and batches that nobody here has seen, found out and said."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from warnings import warn

import torch
from torch import distributed
from torch.nn import Module

from penstock.core.schedule import Schedule
from penstock.errors import PenstockError, RunError
from penstock.model.decoders.sliced_stage import take_slices
from penstock.model.stages.module_stage import ModuleStage
from penstock.model.stages.value_tree import leaves
from penstock.run.comm.collective import gather_stacked
from penstock.run.comm.mesh import Mesh
from penstock.run.step.agreement import DIGITS
from penstock.run.step.module_batch import ModuleBatch

NAMED = 3
"""Parameters that a message names."""


def device_of(modules: Iterable[Module]) -> torch.device:
    """Where the parameters of this rank are; on the host where it has none."""
    found = {parameter.device for module in modules for parameter in module.parameters()}
    if len(found) > 1:
        raise RunError(
            f"the modules of this rank are on {', '.join(sorted(map(str, found)))}",
            hint="move all modules of a rank to one device",
        )
    return found.pop() if found else torch.device("cpu")


def ready_for(schedule: Schedule, modules: Sequence[Module]) -> None:
    """Make modules ready for slices where the schedule has them, or refuse them."""
    if max(schedule.shape.slices) > 1:
        take_slices(modules)


def on_every_rank(mesh: Mesh, work: Callable[[], None]) -> None:
    """Do some work of this rank alone; what is refused on one rank is refused on all, which would
    wait for it otherwise."""
    refusal = None
    try:
        work()
    except PenstockError as error:
        refusal = error
    told: list[tuple[str, str] | None] = [None]
    if mesh.world is not None:
        told = [None] * mesh.grid.ranks
        own = (refusal.message, refusal.hint) if refusal else None
        distributed.all_gather_object(told, own, group=mesh.world)
    if refusal is not None:
        raise refusal
    for rank, other in enumerate(told):
        if other is not None:
            raise RunError(f"rank {rank}: {other[0]}", hint=other[1])


def refuse_hostless(mesh: Mesh) -> None:
    """Ranks agree on what they do by way of the host."""
    if mesh.world is not None and "cpu:" not in str(distributed.get_backend_config(mesh.world)):
        raise RunError(
            f"the process group has no back end for the host, only "
            f"{distributed.get_backend_config(mesh.world)}",
            hint='start it with torch.distributed.init_process_group("cpu:gloo,cuda:nccl")',
        )


def other_numbers(batch: ModuleBatch, mesh: Mesh) -> list[int]:
    """Devices of this replica whose batch has other numbers than that of device 0. Numbers on a
    GPU are not looked at."""
    sum_of_all = sha256()
    for leaf in leaves(tuple(batch)):
        if leaf.device.type == "cpu":
            sum_of_all.update(leaf.detach().contiguous().view(-1).view(torch.uint8).numpy())
    own = torch.tensor([int(sum_of_all.hexdigest()[:DIGITS], 16)])
    stated = gather_stacked(own, mesh.pipeline).flatten().tolist()
    return [device for device, each in enumerate(stated) if each != stated[0]]


def refuse_unreached(stages: Mapping[int, ModuleStage], mesh: Mesh) -> None:
    """Refuse stages that no gradient has reached in a step, on every rank; say which single
    parameters none has reached, for some models that is as it should be."""
    faults = {number: fault for number, stage in stages.items() if (fault := _fault(stage))}
    told: list[dict[int, str]] = [faults]
    if mesh.world is not None:
        told = [{} for _ in range(mesh.grid.ranks)]
        distributed.all_gather_object(told, faults, group=mesh.world)
    everywhere = {number: fault for each in told for number, fault in each.items()}
    if everywhere:
        number = min(everywhere)
        raise RunError(
            f"stage {number} {everywhere[number]}",
            hint="look for detach(), torch.no_grad() and .data in its forward; freeze what is not "
            "to be trained with requires_grad_(False)",
        )
    for number, stage in stages.items():
        if missing := _without_gradient(stage):
            warn(
                f"stage {number}: {_listed(missing)} got no gradient in the first step",
                stacklevel=4,
            )


def _fault(stage: ModuleStage) -> str:
    """Why the gradients of a stage cannot be right."""
    trained = [weight for weight in stage.module.parameters() if weight.requires_grad]
    if trained and len(_without_gradient(stage)) == len(trained):
        return f"got no gradient for any of its {len(trained)} trained parameters"
    if stage.ignores_input:
        return "gives an output that does not depend on its input, so earlier stages cannot learn"
    return ""


def _without_gradient(stage: ModuleStage) -> list[str]:
    named = stage.module.named_parameters()
    return [name for name, weight in named if weight.requires_grad and weight.grad is None]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more

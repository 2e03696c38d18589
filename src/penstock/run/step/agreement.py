"""Ranks agree on the plan of their next steps before they take it.

Ranks of one replica with different plans would send what others do not expect. Replicas have
different data and may have different plans, as long as their ranks meet those of other replicas in
the same order: where gradients are reduced, the norm is taken and weights are gathered. What they
state is short, so every rank states it to all, whenever a plan is chosen.
"""

from collections.abc import Sequence
from hashlib import sha256

import torch
from torch import distributed

from penstock.core.ops import STAGE_KINDS
from penstock.core.schedule import Schedule
from penstock.errors import RunError
from penstock.run.comm.mesh import Mesh
from penstock.run.program.step_plan import StepPlan

DIGITS = 15
"""Hexadecimal digits of a signature that fit into a signed number of 64 bits."""


def agree_on_plan(plan: StepPlan, whole: Schedule, mesh: Mesh) -> None:
    """Return where the ranks of each replica have stated the same plan, and all ranks that they
    meet in one order; otherwise refuse, on every rank. `whole` is the plan with the step's end."""
    stated = _stated([plan.signature, meeting_order(whole)], mesh)
    replicas = [mesh.grid.coordinates(rank)["replica"] for rank in range(len(stated))]
    first = [replicas.index(replica) for replica in replicas]
    odd = [rank for rank, own in enumerate(stated) if own[0] != stated[first[rank]][0]]
    if odd:
        raise RunError(
            f"ranks {', '.join(map(str, odd))} have another plan for the step than rank "
            f"{first[odd[0]]}; this rank has {plan.schedule.name} over {len(plan.lengths)} "
            "microbatches",
            hint="choose the plan of a step by what all ranks know",
        )
    if plan.layout.cell.experts > 1:
        _refuse_other_replicas([own[0] for own in stated])
    if odd := [rank for rank, own in enumerate(stated) if own[1] != stated[0][1]]:
        raise RunError(
            f"ranks {', '.join(map(str, odd))} gather weights or reduce gradients in another order "
            f"than rank 0; this rank has {plan.schedule.name}",
            hint="take plans for replicas whose stages end in one order, or one plan for all",
        )


def _refuse_other_replicas(plans: Sequence[int]) -> None:
    """Refuse plans that differ between replicas which exchange tokens in every op."""
    if odd := [rank for rank, plan in enumerate(plans) if plan != plans[0]]:
        raise RunError(
            f"ranks {', '.join(map(str, odd))} have another plan for the step than rank 0, but "
            "replicas share experts and exchange tokens in every op",
            hint="set mesh.experts to 1, or take one plan for all replicas",
        )


def meeting_order(whole: Schedule) -> str:
    """Equal for schedules whose devices meet those of other replicas in the same order."""
    met = [
        (device, stream, op)
        for device, stream, ops in whole.table.lanes()
        for op in ops
        if op.kind in STAGE_KINDS
    ]
    return sha256(repr(met).encode()).hexdigest()


def odd_ranks(signature: str, mesh: Mesh) -> list[int]:
    """Ranks that state another signature than rank 0 does; every rank gets the same list."""
    stated = _stated([signature], mesh)
    return [rank for rank, own in enumerate(stated) if own != stated[0]]


def _stated(signatures: Sequence[str], mesh: Mesh) -> list[list[int]]:
    """What every rank states."""
    own = torch.tensor([int(signature[:DIGITS], 16) for signature in signatures])
    if mesh.world is None:
        return [own.tolist()]
    heard = [torch.zeros_like(own) for _ in range(mesh.grid.ranks)]
    distributed.all_gather(heard, own, group=mesh.world)
    return [each.tolist() for each in heard]

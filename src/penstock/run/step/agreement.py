"""Ranks agree on the plan of their next steps before they take it.

Ranks with different plans would send what others do not expect. What they state is short, so every
rank states its plan to all, whenever a plan is chosen.
"""

import torch
from torch import distributed

from penstock.errors import RunError
from penstock.run.comm.mesh import Mesh
from penstock.run.program.step_plan import StepPlan

DIGITS = 15
"""Hexadecimal digits of a signature that fit into a signed number of 64 bits."""


def agree_on_plan(plan: StepPlan, mesh: Mesh) -> None:
    """Return where all ranks have stated the same plan; otherwise refuse, on every rank."""
    if odd := odd_ranks(plan.signature, mesh):
        raise RunError(
            f"ranks {', '.join(map(str, odd))} have another plan for the step than rank 0; this "
            f"rank has {plan.schedule.name} over {len(plan.lengths)} microbatches",
            hint="choose the plan of a step by what all ranks know",
        )


def odd_ranks(signature: str, mesh: Mesh) -> list[int]:
    """Ranks that state another signature than rank 0 does; every rank gets the same list."""
    if mesh.world is None:
        return []
    stated = torch.tensor([int(signature[:DIGITS], 16)])
    heard = [torch.zeros_like(stated) for _ in range(mesh.grid.ranks)]
    distributed.all_gather(heard, stated, group=mesh.world)
    return [rank for rank, other in enumerate(heard) if other != heard[0]]

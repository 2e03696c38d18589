"""The groups of ranks that weights or a plan ask for, made and connected in one order."""

import torch

from penstock.run.comm.cell_group import CellGroup
from penstock.run.comm.collective import connect_group
from penstock.run.comm.mesh import Mesh
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.program.token_groups import partial_group_sizes
from penstock.run.step.gradient_runs import expert_groups


def make_holder_groups(layout: Layout, mesh: Mesh) -> None:
    """Make the groups that add up parts of gradients; all ranks do so, in the same order."""
    for stage, home in enumerate(layout.homes):
        parts = layout.parameters(stage).parts.values() if home is not None else ()
        for part in parts:
            if any(len(holders) > 1 for holders in part.among):
                mesh.holders(part.among)
    expert_groups(layout.cell, mesh)


def connect_devices(layout: Layout, mesh: Mesh, device: torch.device) -> None:
    """Make ready what devices add up over: all that have shards, or those of a tied weight; and
    what replicas exchange tokens over, where they share experts."""
    for group in expert_groups(layout.cell, mesh):
        connect_group(group, device)
    if layout.on_shards:
        connect_group(mesh.shards, device)
        return
    for tie in layout.ties:
        homes = {home for stage in tie if (home := layout.homes[stage]) is not None}
        connect_group(mesh.among(tuple(sorted(homes))), device)


def make_token_groups(
    plan: StepPlan, mesh: Mesh, device: torch.device
) -> dict[int, CellGroup | None]:
    """The group of this rank of each size, where a plan has groups: all sizes that there may be, so
    that all ranks make the same ones, whichever plan comes first."""
    if not plan.groups:
        return {}
    whole = plan.layout.cell.ulysses
    found = {}
    for size in (*partial_group_sizes(whole), whole):
        connect_group(group := mesh.sharing_tokens(size), device)
        found[size] = CellGroup(group) if group is not None else None
    return found

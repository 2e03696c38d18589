"""What a rank keeps of its stages, before anything has filled it."""

from collections.abc import Mapping

import torch

from penstock.model.stages.weights import Weights
from penstock.run.comm.mesh import Mesh
from penstock.run.program.rotation import rotation_of
from penstock.run.program.sharded_schedule import schedule_for
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.gradient_runs import refuse_shared_experts
from penstock.run.step.sharding import OptimizerShards, Sharding


def held_weights(
    plan: StepPlan,
    mesh: Mesh,
    sharding: Sharding,
    device: torch.device,
    host: Mapping[int, Weights],
) -> dict[int, Weights]:
    """Of all stages; with room for a whole gradient where the plan lets it stay. Main weights may
    be on the host."""
    layout = plan.layout
    shards, replica = isinstance(sharding, OptimizerShards), mesh.replica
    refuse_shared_experts(mesh.replicas, layout.cell.experts, sharded=shards)
    found = {
        stage: weights.computed_on(device, layout.parameters(stage, mesh.tensor, replica))
        for stage, weights in host.items()
    }
    for stage in layout.stages_of(mesh.device):
        if stage in host:
            continue
        own = sharding.ownership(
            layout.parameters(stage, mesh.tensor, mesh.replica), mesh, tied=layout.model.tied
        )
        dtype, main = layout.dtype, layout.main
        found[stage] = sharding.empty(own, dtype=dtype, main=main, device=device)
    if sharding.buffers:
        sharded = schedule_for(plan.schedule, sharding.buffers)
        for stage in rotation_of(sharded, mesh.device).staying:
            found[stage] = found[stage].with_whole_gradient()
    return found

"""The work of a step on a device: what its ops need while they run depends on the kernels there."""

from dataclasses import replace

import torch

from penstock.cost.stage_workload import workload_for
from penstock.cost.temporary import fused_backward_bytes
from penstock.cost.workload import Workload
from penstock.model.kernels.choice import fuses
from penstock.run.program.step_plan import StepPlan


def workload_of(plan: StepPlan, device: torch.device) -> Workload:
    """The work of a step of a plan, for one sequence of each microbatch."""
    layout = plan.layout
    workload = workload_for(plan.schedule.shape, layout.model, plan.lengths, layout.layers)
    # In 32 bits attention is computed by plain products, fused kernels or not.
    if fuses(device, layout.dtype) and layout.dtype.itemsize < torch.float32.itemsize:
        return replace(workload, inside=fused_backward_bytes)
    return workload

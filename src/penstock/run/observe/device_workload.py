"""The work of a step on a device: what its ops need while they run depends on the kernels there."""

from dataclasses import replace

import torch

from penstock.cost.stage_workload import workload_for
from penstock.cost.temporary import GPU_KERNELS, PLAIN_GPU_KERNELS
from penstock.cost.workload import Workload
from penstock.model.kernels.choice import fuses
from penstock.run.program.step_plan import StepPlan


def workload_of(plan: StepPlan, device: torch.device) -> Workload:
    """The work of a step of a plan, for one sequence of each microbatch."""
    layout = plan.layout
    workload = workload_for(plan.schedule.shape, layout.model, plan.lengths, layout.layers)
    if device.type == "cpu":
        return workload
    # In 32 bits attention is computed by plain products, fused kernels or not.
    narrow = layout.dtype.itemsize < torch.float32.itemsize
    fused = fuses(device, layout.dtype) and narrow
    return replace(workload, needs=GPU_KERNELS if fused else PLAIN_GPU_KERNELS)

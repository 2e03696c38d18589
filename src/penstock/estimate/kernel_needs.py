"""What kernels need for a while, on the device that a layout is on."""

from penstock.cost.temporary import GPU_KERNELS, HOST_KERNELS, PLAIN_GPU_KERNELS, KernelNeeds
from penstock.estimate.layout import BYTES_OF, TrainingLayout
from penstock.plan.stage_parameters import MAIN_BYTES


def kernel_needs(layout: TrainingLayout) -> KernelNeeds:
    """A host's, or those of a GPU whose kernels are fused or not. In 32 bits a run computes
    attention by plain products, fused kernels or not."""
    measured = layout.cluster.gpu.measured
    if measured is not None and measured.on_host:
        return HOST_KERNELS
    narrow = BYTES_OF[layout.precision] < MAIN_BYTES
    return GPU_KERNELS if layout.fused_norm and narrow else PLAIN_GPU_KERNELS

"""What kernels need for a while, on the device that a layout is on."""

from penstock.cost.temporary import GPU_KERNELS, HOST_KERNELS, PLAIN_GPU_KERNELS, KernelNeeds
from penstock.estimate.layout import TrainingLayout


def kernel_needs(layout: TrainingLayout) -> KernelNeeds:
    """A host's, or those of a GPU whose kernels are fused or not."""
    measured = layout.cluster.gpu.measured
    if measured is not None and measured.on_host:
        return HOST_KERNELS
    return GPU_KERNELS if layout.fused_norm else PLAIN_GPU_KERNELS

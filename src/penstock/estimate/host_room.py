"""What waits in the memory of hosts, and whether a machine has so much of it.

Activations that leave a GPU go to its host, which all GPUs of the machine share. Each rank takes
room for the most that it has there at once, so a machine needs the sum over its ranks. Ranks of
different devices have different amounts, so the machine with most of them decides.
"""

import numpy as np

from penstock.cluster.cluster import Cluster
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.layout_cost import LayoutCost
from penstock.estimate.step_schedule import StepSchedule
from penstock.plan.host_memory import host_peaks

SHARE_FOR_STEP = 0.9
"""Of a host's memory; the rest is for its system, for processes and for data. Assumption."""


def room_on_host(cluster: Cluster) -> float:
    """Bytes of each host that a step may take; no limit where its memory is not known."""
    memory = cluster.machine.memory
    return SHARE_FOR_STEP * memory if memory else np.inf


def fullest_host(layout: TrainingLayout, step: StepSchedule, cost: LayoutCost) -> int:
    """Bytes of the host that has most; 0 where nothing waits there."""
    peaks = np.array(host_peaks(step.schedule, cost.workload, layout.rows), np.int64)
    if not peaks.any():
        return 0
    gpus = np.arange(layout.cluster.gpus)
    device = gpus // cost.links.strides["device"] % layout.pipeline
    machines = gpus[:: layout.cluster.machine.gpus]
    return int(np.add.reduceat(peaks[device], machines).max())

"""The groups of a mesh on a cluster: how many ranks each has, and how many of them in a machine."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from penstock.arch.mesh_shape import MeshShape
from penstock.cluster.cluster import Cluster
from penstock.cluster.collective_times import GroupLinks
from penstock.cluster.gpu import KEEP_SCORES
from penstock.cost.hardware import Hardware
from penstock.cost.mesh_links import MeshLinks
from penstock.estimate.layer_times import LayerTimes


@dataclass(frozen=True)
class ClusterLinks(MeshLinks):
    """The links of a mesh on a cluster."""

    cluster: Cluster

    def group(self, *axes: str) -> GroupLinks:
        """The ranks along some axes. Where they do not fill machines evenly, the machine that has
        fewest of them decides."""
        known = self.__dict__.setdefault("_groups", {})
        if axes not in known:
            known[axes] = self._group(axes)
        found: GroupLinks = known[axes]
        return found

    def _group(self, axes: tuple[str, ...]) -> GroupLinks:
        places = np.zeros(1, np.int64)
        for axis in axes:
            steps = np.arange(self.sizes[axis]) * self.strides[axis]
            places = (places[:, None] + steps).ravel()
        _, counts = np.unique(places // self.hardware.machine, return_counts=True)
        return GroupLinks(self.cluster, len(places), int(counts.min()))


@lru_cache(maxsize=1024)
def cluster_links(
    mesh: MeshShape, devices: int, hardware: Hardware, cluster: Cluster
) -> ClusterLinks:
    """The links of a mesh; those of one mesh share the groups that were found."""
    return ClusterLinks(mesh, devices, hardware, cluster)


def seconds_of_each(
    seconds: Callable[[float], float], sent: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Of each row that sends something; many send as much as others."""
    sizes: list[float] = sent.tolist()
    known = {each: seconds(each) if each else 0.0 for each in set(sizes)}
    return np.array([*map(known.__getitem__, sizes)])


def hardware_of(cluster: Cluster, times: LayerTimes) -> Hardware:
    """The rates that hide communication, and the size of a machine."""
    kernel = "flash2" if times.attention in KEEP_SCORES else times.attention
    reached = getattr(cluster.gpu.reached, kernel)
    return Hardware(
        linear=int(times.product_rate),
        attention=int(times.peak * reached.forward),
        attention_backward=int(times.peak * reached.backward),
        memory=int(times.memory_rate),
        host=int(cluster.gpu.host_rate),
        link=int(cluster.machine.rate),
        latency=Fraction(0),
        network=int(cluster.network.rate),
        machine=cluster.machine.gpus,
    )

"""Which links the ranks of a mesh talk over: those inside a machine, or those between machines.

Ranks fill machines in their order, and the mesh says which axis changes fastest over ranks. A group
talks as fast as its slowest link.

    8 ranks of a machine, order replica, device, tensor

    2 replicas x 2 devices x 4 tensor    machine 0: replica 0        machine 1: replica 1
    1 replica  x 2 devices x 8 tensor    machine 0: device 0         machine 1: device 1
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod

from penstock.arch.mesh_shape import COPY_AXES, MeshShape
from penstock.cost.hardware import Hardware


@dataclass(frozen=True)
class MeshLinks:
    """The links of a mesh with so many devices."""

    mesh: MeshShape
    devices: int
    hardware: Hardware

    def rate(self, *axes: str) -> int:
        """Bytes per second that a rank of a group along these axes sends."""
        inside = all(self._in_one_machine(axis) for axis in axes)
        return self.hardware.link if inside else self.hardware.network

    def rate_between(self, source: int, target: int) -> int:
        """The same between two devices, as they stand in the first replica."""
        near = self.neighbours(source, target)
        return self.hardware.link if near else self.hardware.network

    def neighbours(self, source: int, target: int) -> bool:
        """Whether two devices of the first replica are in one machine."""
        stride, machine = self.strides["device"], self.hardware.machine
        return source * stride // machine == target * stride // machine

    def _in_one_machine(self, axis: str) -> bool:
        """Whether no group along an axis has ranks of two machines."""
        machine, reach = self.hardware.machine, self.sizes[axis] * self.strides[axis]
        return self.sizes[axis] == 1 or self.ranks <= machine or machine % reach == 0

    @property
    def ranks(self) -> int:
        return self.mesh.ranks(self.devices)

    @property
    def copies(self) -> int:
        """Ranks that hold the same weights."""
        return prod(self.sizes[axis] for axis in COPY_AXES)

    @cached_property
    def sizes(self) -> dict[str, int]:
        cell = self.mesh.cell
        return {
            "replica": self.mesh.replicas,
            "device": self.devices,
            "ring": cell.ring,
            "ulysses": cell.ulysses,
            "tensor": cell.tensor,
        }

    @cached_property
    def strides(self) -> dict[str, int]:
        """How far apart neighbours along an axis are, in ranks."""
        parts = {"sequence": ("ring", "ulysses")}
        axes = [one for axis in self.mesh.order for one in parts.get(axis, (axis,))]
        return {
            axis: prod(self.sizes[faster] for faster in axes[place + 1 :])
            for place, axis in enumerate(axes)
        }

"""What all shards of the vocabulary have together: one collective for each read of all of them.

    partial   parts of the embedding, of which all but one are zero for each token: their sum
    stat      softmax statistics, three numbers for each token: gathered, and merged by everybody
    gpart     parts of the output's gradient: their sum, scaled first where the first pass had them

Ranks that share the matrices of a device have shards of their own, so that the group is that of all
devices and tensor ranks. It is used from the collective stream alone, in the order of the program.
"""

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from penstock.arch.dealing import deal
from penstock.model.layers.shard_head import ShardStatistics, UnscaledGradient
from penstock.run.comm.collective import add_up, gather_stacked
from penstock.run.comm.mesh import Mesh


class ShardMembers(Protocol):
    """Those who have shards."""

    def add_up(self, tensor: Tensor) -> None:
        """The sum over all members, in place."""
        ...

    def gather(self, tensor: Tensor) -> Tensor:
        """The tensors of all members, along a new first axis."""
        ...


class ShardRanks:
    """The ranks of a group."""

    def __init__(self, group: ProcessGroup | None) -> None:
        self.group = group

    def add_up(self, tensor: Tensor) -> None:
        add_up(tensor, self.group)

    def gather(self, tensor: Tensor) -> Tensor:
        return gather_stacked(tensor, self.group)


class ShardSums:
    """Brings the parts of this rank and of others together."""

    def __init__(
        self, members: ShardMembers, device: torch.device, tensor: range = range(1)
    ) -> None:
        """`tensor` begins with the number of this rank among those that share its matrices."""
        self._members, self._tensor = members, tensor
        self._compute = torch.cuda.current_stream(device) if device.type == "cuda" else None

    @classmethod
    def on(cls, mesh: Mesh, device: torch.device) -> "ShardSums":
        """Those of a rank of a mesh."""
        return cls(ShardRanks(mesh.shards), device, range(mesh.tensor, mesh.grid.tensor))

    def of(self, part: Any) -> Any:
        """What a part, written by an op of this rank, and those of all others come to."""
        if isinstance(part, ShardStatistics):
            return self._merged(part)
        return self._total(part.scaled() if isinstance(part, UnscaledGradient) else part)

    def _merged(self, statistics: ShardStatistics) -> ShardStatistics:
        """The same object, which then has the statistics of all words."""
        statistics.merge(self._members.gather(statistics.stacked()))
        self._for_compute(statistics.largest, statistics.total, statistics.picked)
        return statistics

    def _total(self, part: Tensor) -> Tensor:
        """The sum as a stage hands it on: a rank's share of the tokens."""
        self._kept_here(part)
        self._members.add_up(part)
        if self._tensor.stop == 1:
            return part
        own = deal(len(part), self._tensor.start, self._tensor.stop)
        share = part[own.start : own.stop].clone()  # a view would keep all of it
        self._for_compute(share)
        return share

    def _kept_here(self, tensor: Tensor) -> None:
        """Memory that this stream still reads is not given out again to the other one."""
        if self._compute is not None:
            tensor.record_stream(torch.cuda.current_stream(tensor.device))

    def _for_compute(self, *tensors: Tensor) -> None:
        """The same for what was made here and is read by the compute stream."""
        if self._compute is not None:
            for tensor in tensors:
                tensor.record_stream(self._compute)

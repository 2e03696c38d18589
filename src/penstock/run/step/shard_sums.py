"""What all shards of the vocabulary have together: one collective for each read of all of them.

    partial   parts of the embedding, of which all but one are zero for each token: their sum
    stat      softmax statistics, three numbers for each token: gathered, and merged by everybody
    gpart     parts of the output's gradient: their sum, scaled first where the first pass had them

Ranks that share the matrices of a device have shards of their own, so that the group is that of all
devices and tensor ranks. It is used from the collective stream alone, in the order of the program.
"""

from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from penstock.arch.dealing import deal
from penstock.model.layers.shard_head import ShardStatistics, UnscaledGradient
from penstock.run.comm.collective import add_up, gather_stacked
from penstock.run.comm.mesh import Mesh


class ShardSums:
    """Brings the parts of this rank and of others together."""

    def __init__(self, mesh: Mesh, device: torch.device) -> None:
        self.group: ProcessGroup | None = mesh.shards
        self._tensor, self._ranks = mesh.tensor, mesh.grid.tensor
        self._compute = torch.cuda.current_stream(device) if device.type == "cuda" else None

    def of(self, part: Any) -> Any:
        """What a part, written by an op of this rank, and those of all others come to."""
        if isinstance(part, ShardStatistics):
            return self._merged(part)
        return self._total(part.scaled() if isinstance(part, UnscaledGradient) else part)

    def _merged(self, statistics: ShardStatistics) -> ShardStatistics:
        """The same object, which then has the statistics of all words."""
        own = statistics.stacked()
        statistics.merge(gather_stacked(own, self.group))
        self._for_compute(statistics.largest, statistics.total, statistics.picked)
        return statistics

    def _total(self, part: Tensor) -> Tensor:
        """The sum as a stage hands it on: a rank's share of the tokens."""
        self._kept_here(part)
        add_up(part, self.group)
        if self._ranks == 1:
            return part
        own = deal(len(part), self._tensor, self._ranks)
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

"""What messages between stages carry, where that is not the output of a layer.

What goes past the brackets of a model that leaves out tokens goes along, and stages that are parts
of layers send each other what attention needs, or what it gives. A step is made without a model, so
its boundaries have parts of the output of a layer of all tokens, as many as the cost model counts.
"""

from typing import NamedTuple

from penstock.arch.cell_shape import ONE_RANK, CellShape
from penstock.arch.config import ModelConfig
from penstock.core.schedule import Schedule
from penstock.cost.busiest_place import busiest_place
from penstock.cost.cell_workload import rank_workload
from penstock.cost.stage_workload import workload_for
from penstock.cost.workload import Workload
from penstock.estimate.layout import TrainingLayout
from penstock.run.program.unsupported import refuse_subsampling


def carry_more(schedule: Schedule, model: ModelConfig) -> bool:
    """Whether messages have other sizes than the output of a layer."""
    return model.subsampling is not None or bool(schedule.shape.weightless)


class MessageLoad(NamedTuple):
    """What the sizes of messages depend on, beside the schedule."""

    model: ModelConfig
    layers: tuple[int, ...]
    cell: CellShape
    rows: int

    @classmethod
    def of(cls, layout: TrainingLayout) -> "MessageLoad":
        """That of a layout."""
        return cls(layout.model, layout.layers, layout.mesh.cell, layout.rows)

    def parts(self, schedule: Schedule, lengths: tuple[int, ...]) -> tuple[int, ...]:
        """Parts of the output of a layer that go over each boundary."""
        refuse_subsampling(self.model, schedule, ONE_RANK)
        shape = schedule.shape
        every = (lengths,) * shape.microbatches
        work = workload_for(shape, self.model, every, self.layers)
        if shape.weightless:
            return self._of_cut(work, schedule, sum(lengths))
        whole = work.boundary_bytes(sum(lengths))
        sent = work.applied_to(schedule).shape.boundary_bytes
        return tuple(-(-each * work.boundary_parts // whole) for each in sent)

    def _of_cut(self, work: Workload, schedule: Schedule, tokens: int) -> tuple[int, ...]:
        """Of the rank that computes most. Weights that go along do so once for all rows."""
        own = rank_workload(work, self.cell, busiest_place(work, schedule, self.cell))
        whole = self.rows * own.boundary_bytes(tokens)
        sent = own.boundaries(self.rows * tokens)
        return tuple(-(-each * own.boundary_parts // whole) for each in sent)

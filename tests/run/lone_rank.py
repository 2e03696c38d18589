"""One rank of a mesh by itself: it does all that it would do, and nobody answers.

What others would send are whatever numbers the memory had, so nothing that is computed is right.
But every tensor has its size and lives as long as it would, so memory can be measured for every
rank of every mesh in one process, without waiting for anybody.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from penstock.core.program import Channel
from penstock.model.parallel.group import Pending
from penstock.run.comm.cell_group import CellGroup, StartedCollective
from penstock.run.comm.grid import Grid
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Arrival
from penstock.run.program.calls import Post
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import AdamW
from penstock.run.step.state import begin
from run.jobs import CPU
from run.peak_jobs import peak_of


class Ended:
    """Something that has ended, and holds what it was given until it is let go."""

    def __init__(self, *held: Tensor) -> None:
        self.held = held

    def wait(self) -> None:
        return None


class LoneGroup(CellGroup):
    """Ranks of a cell of which one is there."""

    def __init__(self, size: int, index: int) -> None:
        self.size, self.index = size, index

    def _reduce(self, tensor: Tensor, how: Any) -> Pending:
        return StartedCollective(Ended(tensor), None)

    def _gather(self, whole: Tensor, part: Tensor) -> Pending:
        return StartedCollective(Ended(whole, part), None)

    def _exchange(
        self, landing: Tensor, sent: Tensor, comes: Sequence[int], goes: Sequence[int]
    ) -> Pending:
        return StartedCollective(Ended(landing, sent), None)


class LoneMesh(Mesh):
    """A place in a mesh without the processes of the others."""

    @property
    def world(self) -> None:
        return None

    def _member(self, axis: str) -> CellGroup | None:
        size = self.grid.size(axis)
        return LoneGroup(size, self.grid.coordinates(self.rank)[axis]) if size > 1 else None


class Nowhere:
    """A transport whose messages leave at once, and where something is always there."""

    def open(self, channels: Iterable[Channel]) -> None:
        return None

    def send(self, post: Post, tensor: Tensor) -> None:
        return None

    def receive(self, post: Post, tensor: Tensor) -> Arrival:
        return Ended(tensor)

    def drain(self) -> None:
        return None

    def close(self) -> None:
        return None


def lone_engine(plan: StepPlan, rank: int) -> Engine:
    """The engine of one rank of the plan's cells."""
    cell = plan.layout.cell
    grid = Grid(1, plan.layout.devices, cell.ring, cell.ulysses, cell.tensor)
    engine = Engine(plan, LoneMesh(grid, rank), Nowhere(), adam=AdamW(), device=CPU)
    begin(engine, 1)
    return engine


def lone_peak(plan: StepPlan, rank: int) -> int:
    """The most that a step adds on a rank."""
    engine = lone_engine(plan, rank)
    try:
        return peak_of(engine)
    finally:
        engine.close()

"""Ranks of a cell as threads that run every op of a schedule, and count what each op sends."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from model.parallel.threads import ThreadGroup, run_ranks
from model.samples import CPU
from penstock.arch.cell_shape import CellPlace, CellShape
from penstock.arch.config import ModelConfig
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.data.batch import IGNORE, Microbatch
from penstock.model.attention.piece import Piece, pieces_of, take_positions
from penstock.model.attention.positions import own_positions
from penstock.model.parallel.cell import Cell
from penstock.model.parallel.group import Pending, RankGroup, TensorSize, Work
from penstock.model.parallel.tokens import Replicated, Scattered
from penstock.model.stages.stage import Stage
from penstock.model.stages.weights import Weights
from penstock.run.program.layout import Layout
from penstock.run.step.stages import stage_of
from penstock.sim import simulate

Sent = Counter[tuple[str, str]]
"""Bytes, or calls, by axis and name of the collective."""


class OpCount(NamedTuple):
    """What one op of one rank has sent, and how often it called."""

    sent: Sent
    calls: Sent


class CountingGroup:
    """A group that counts the bytes that leave this rank; of a sum for all, those that go out when
    it is scattered and gathered again."""

    def __init__(self, group: RankGroup, axis: str, count: Callable[[str, str, int], None]) -> None:
        self._group, self._axis, self._count = group, axis, count
        self.size, self.index = group.size, group.index

    def add_up(self, tensor: Tensor) -> Pending:
        self._note("add_up", self._summed(tensor))
        return self._group.add_up(tensor)

    def take_largest(self, tensor: Tensor) -> Pending:
        self._note("take_largest", self._summed(tensor))
        return self._group.take_largest(tensor)

    def gather(self, part: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Pending]:
        self._note("gather", part.nbytes * (self.size - 1))
        return self._group.gather(part, sizes)

    def scatter_sum(self, whole: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Pending]:
        own, pending = self._group.scatter_sum(whole, sizes)
        self._note("scatter_sum", whole.nbytes - own.nbytes)
        return own, pending

    def exchange(
        self, parts: Sequence[Tensor], sizes: Sequence[TensorSize]
    ) -> tuple[list[Tensor], Pending]:
        self._note("exchange", sum(part.nbytes for part in parts) - parts[self.index].nbytes)
        return self._group.exchange(parts, sizes)

    def pass_on(
        self, tensors: Sequence[Tensor], sizes: Sequence[TensorSize]
    ) -> tuple[list[Tensor], Pending]:
        self._note("pass_on", sum(tensor.nbytes for tensor in tensors))
        return self._group.pass_on(tensors, sizes)

    def _summed(self, tensor: Tensor) -> int:
        assert 2 * tensor.nbytes % self.size == 0, "take sizes that can be scattered evenly"
        return 2 * tensor.nbytes * (self.size - 1) // self.size

    def _note(self, name: str, sent: int) -> None:
        self._count(self._axis, name, sent)


class Rank:
    """One rank of all devices: it runs the ops of every stage, one behind the other."""

    def __init__(self, layout: Layout, pieces: list[list[Piece]], threads: ThreadGroup) -> None:
        self.current = OpCount(Counter(), Counter())
        places = [*layout.cell.places()]
        self.place = places[threads.rank]
        self.cell = self._cell(layout.cell, places, threads)
        self.pieces = [[self._own(piece) for piece in slices] for slices in pieces]
        self.stages = [stage_of(layout, stage, CPU, self.cell) for stage in range(layout.stages)]
        self.weights = [self._weights(layout, stage) for stage in range(layout.stages)]
        self.held: dict[Any, Any] = {}

    def _cell(self, shape: CellShape, places: list[CellPlace], threads: ThreadGroup) -> Cell:
        groups = {}
        for axis in ("tensor", "ulysses", "ring"):
            mine = [n for n, other in enumerate(places) if self._along(axis, other)]
            if len(mine) > 1:
                groups[axis] = CountingGroup(threads.among(mine, axis), axis, self._count)
        tensor = groups.get("tensor")
        if tensor is None:
            return Cell(**groups)
        kind = Scattered if shape.norms == "scattered" else Replicated
        return Cell(**groups, tokens=kind(tensor))

    def _along(self, axis: str, other: CellPlace) -> bool:
        """Whether a place differs from the own one along one axis at most."""
        return other._replace(**{axis: getattr(self.place, axis)}) == self.place

    def _own(self, piece: Piece) -> Piece:
        return take_positions(piece, own_positions(piece.start, piece.end, self.cell))

    def _weights(self, layout: Layout, stage: int) -> tuple[Any, Any]:
        parameters = layout.parameters(stage, self.place.tensor)
        found = Weights.empty(parameters, dtype=layout.dtype, main=layout.main, device=CPU)
        found.value.normal_(0, 0.1)
        return self.stages[stage].views(found.value), self.stages[stage].views(found.grad)

    def _count(self, axis: str, name: str, sent: int) -> None:
        self.current.sent[axis, name] += sent
        self.current.calls[axis, name] += 1

    def run(self, op: Op) -> Work[OpCount]:
        """Run an op, and say what it has sent."""
        self.current = OpCount(Counter(), Counter())
        stage, piece = self.stages[op.stage], self.pieces[op.mb][op.slice]
        handlers = {
            "F": self._forward,
            "N": self._forward_light,
            "R": self._recompute,
            "B": self._both_gradients,
            "I": self._input_gradient,
            "W": self._weight_gradient,
        }
        yield from handlers[op.kind](op, stage, piece)
        return self.current

    def _forward(self, op: Op, stage: Stage, piece: Piece) -> Work[None]:
        weight, _ = self.weights[op.stage]
        work = stage.forward(weight, piece, self._input(op), self._memory(op))
        self._keep_forward(op, (yield from _worked(work)))

    def _forward_light(self, op: Op, stage: Stage, piece: Piece) -> Work[None]:
        weight, _ = self.weights[op.stage]
        work = stage.forward_light(weight, piece, self._input(op), self._memory(op))
        self._keep_forward(op, (yield from _worked(work)))

    def _recompute(self, op: Op, stage: Stage, piece: Piece) -> Work[None]:
        weight, _ = self.weights[op.stage]
        work = stage.recompute(weight, piece, self.held["act", op[1:]], self._memory(op))
        self.held["act", op[1:]] = yield from _worked(work)

    def _both_gradients(self, op: Op, stage: Stage, piece: Piece) -> Work[None]:
        yield from self._backward(stage.backward, op, piece)

    def _input_gradient(self, op: Op, stage: Stage, piece: Piece) -> Work[None]:
        yield from self._backward(stage.input_gradient, op, piece)

    def _weight_gradient(self, op: Op, stage: Stage, piece: Piece) -> Work[None]:
        _, gradient = self.weights[op.stage]
        stage.weight_gradient(gradient, piece, self.held.pop(("stash", op[1:])))
        yield from ()

    def _backward(self, backward: Callable[..., Any], op: Op, piece: Piece) -> Work[None]:
        act, g = self.held.pop(("act", op[1:])), self.held.pop(("g", op[1:]), None)
        dkv = self.held.get(("dkv", op.stage, op.mb))
        work = backward(*self.weights[op.stage], piece, act, g, self._memory(op), dkv)
        dx, dkv, stash, _ = yield from _worked(work)
        self.held["g", (op.stage - 1, op.mb, op.slice)] = dx
        self.held["dkv", op.stage, op.mb], self.held["stash", op[1:]] = dkv, stash

    def _keep_forward(self, op: Op, found: Any) -> None:
        y, self.held["act", op[1:]], self.held["kv", op.stage, op.mb] = found
        self.held["x", (op.stage + 1, op.mb, op.slice)] = y

    def _input(self, op: Op) -> Tensor | None:
        found: Tensor | None = self.held.pop(("x", op[1:]), None)
        return found

    def _memory(self, op: Op) -> Any:
        return self.held.get(("kv", op.stage, op.mb))


def _worked(work: Any) -> Work[Any]:
    """The result of work that a rank waits in."""
    return (yield from work)


def counted(
    schedule: Schedule,
    model: ModelConfig,
    cell: CellShape,
    lengths: Sequence[int],
    dtype: torch.dtype = torch.float32,
) -> list[dict[Op, OpCount]]:
    """What every op sends, for each rank of a cell in the order of its places."""
    layout = Layout.of(model, schedule, sum(lengths), dtype=dtype, cell=cell)
    microbatches = range(schedule.shape.microbatches)
    pieces = [[*pieces_of(mb, _batch(model, sum(lengths)), lengths, 1.0)] for mb in microbatches]
    spans = sorted(simulate(schedule).spans(), key=lambda span: (span.end, span.start))

    def work(threads: ThreadGroup) -> Work[dict[Op, OpCount]]:
        rank = Rank(layout, pieces, threads)
        found = {}
        for span in spans:
            found[span.op] = yield from rank.run(span.op)
        return found

    return run_ranks(cell.ranks, work)


def _batch(model: ModelConfig, length: int) -> Microbatch:
    """One document; its last label does not count."""
    tokens = torch.arange(length).remainder(model.vocabulary).unsqueeze(0)
    labels = tokens.roll(-1, 1)
    labels[:, -1] = IGNORE
    return Microbatch(tokens, labels, ((0,),))

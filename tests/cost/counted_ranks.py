"""Ranks of a cell as threads that run every op of a schedule, and count what each op sends."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from model.parallel.threads import ThreadGroup, run_ranks
from model.samples import CPU
from penstock.arch.cell_shape import CellPlace, CellShape
from penstock.arch.config import ModelConfig
from penstock.arch.dealing import deal
from penstock.core.ops import SHARD_KINDS, Op
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


class Products(TorchDispatchMode):
    """Counts the FLOPs of products of matrices that a thread computes."""

    flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in ("aten::mm", "aten::addmm", "aten::addmm_"):
            left, right = args[-2:]
            self.flops += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        return func(*args, **kwargs or {})


class Started:
    """A call under way, and the FLOPs of products from its start to the wait for it."""

    def __init__(self, pending: Pending, name: str, products: Products) -> None:
        self._pending, self._products, self._began = pending, products, products.flops
        self.name, self.meanwhile = name, -1

    def wait(self) -> None:
        self.meanwhile = self._products.flops - self._began
        self._pending.wait()


class CountingGroup:
    """A group that counts the bytes that leave this rank; of a sum for all, those that go out when
    it is scattered and gathered again."""

    def __init__(self, group: RankGroup, axis: str, rank: "Rank") -> None:
        self._group, self._axis, self._rank = group, axis, rank
        self.size, self.index = group.size, group.index

    def add_up(self, tensor: Tensor) -> Pending:
        return self._noted("add_up", self._summed(tensor), self._group.add_up(tensor))

    def take_largest(self, tensor: Tensor) -> Pending:
        return self._noted("take_largest", self._summed(tensor), self._group.take_largest(tensor))

    def gather(self, part: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Pending]:
        whole, pending = self._group.gather(part, sizes)
        return whole, self._noted("gather", part.nbytes * (self.size - 1), pending)

    def scatter_sum(self, whole: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Pending]:
        own, pending = self._group.scatter_sum(whole, sizes)
        return own, self._noted("scatter_sum", whole.nbytes - own.nbytes, pending)

    def exchange(
        self, parts: Sequence[Tensor], sizes: Sequence[TensorSize]
    ) -> tuple[list[Tensor], Pending]:
        sent = sum(part.nbytes for part in parts) - parts[self.index].nbytes
        received, pending = self._group.exchange(parts, sizes)
        return received, self._noted("exchange", sent, pending)

    def pass_on(
        self, tensors: Sequence[Tensor], sizes: Sequence[TensorSize]
    ) -> tuple[list[Tensor], Pending]:
        sent = sum(tensor.nbytes for tensor in tensors)
        received, pending = self._group.pass_on(tensors, sizes)
        return received, self._noted("pass_on", sent, pending)

    def _summed(self, tensor: Tensor) -> int:
        assert 2 * tensor.nbytes % self.size == 0, "take sizes that can be scattered evenly"
        return 2 * tensor.nbytes * (self.size - 1) // self.size

    def _noted(self, name: str, sent: int, pending: Pending) -> Started:
        self._rank.current.sent[self._axis, name] += sent
        self._rank.current.calls[self._axis, name] += 1
        started = Started(pending, name, self._rank.products)
        self._rank.started.append(started)
        return started


class Rank:
    """One rank of all devices: it runs the ops of every stage, one behind the other."""

    def __init__(self, layout: Layout, pieces: list[list[Piece]], threads: ThreadGroup) -> None:
        self.current, self.products = OpCount(Counter(), Counter()), Products()
        self.started: list[Started] = []
        """The calls of the last op."""
        places = [*layout.cell.places()]
        self.place = places[threads.rank]
        self.cell = self._cell(layout.cell, places, threads)
        self.pieces = [[self._own(piece) for piece in slices] for slices in pieces]
        shards = layout.devices if layout.on_shards else 0
        numbers = range(layout.stages + shards)
        self.stages = [stage_of(layout, number, CPU, self.cell) for number in numbers]
        self.weights = [self._weights(layout, number) for number in numbers]
        self.last, self.tensor = layout.stages - 1, layout.cell.tensor
        self.held: dict[Any, Any] = {}

    def _cell(self, shape: CellShape, places: list[CellPlace], threads: ThreadGroup) -> Cell:
        groups = {}
        for axis in ("tensor", "ulysses", "ring"):
            mine = [n for n, other in enumerate(places) if self._along(axis, other)]
            if len(mine) > 1:
                groups[axis] = CountingGroup(threads.among(mine, axis), axis, self)
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

    def run(self, op: Op) -> Work[None]:
        """Run an op; what it has sent is in `current`."""
        self.current, self.started = OpCount(Counter(), Counter()), []
        number = op.stage + (self.last + 1) * (op.kind in SHARD_KINDS)
        stage, piece = self.stages[number], self.pieces[op.mb][op.slice]
        handlers = {
            "E": self._embed,
            "D": self._embed_backward,
            "S": self._first_pass,
            "T": self._second_pass,
            "F": self._forward,
            "N": self._forward_light,
            "R": self._recompute,
            "B": self._both_gradients,
            "I": self._input_gradient,
            "W": self._weight_gradient,
        }
        yield from handlers[op.kind](op, stage, piece)

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

    def _embed(self, op: Op, shard: Any, piece: Piece) -> Work[None]:
        """What all shards come to is as large as the own part: only sizes matter here."""
        weight, _ = self._of_shard(op)
        self.held["x", (0, *op[2:])] = self._own_share(shard.embed(weight, piece))
        yield from ()

    def _embed_backward(self, op: Op, shard: Any, piece: Piece) -> Work[None]:
        _, gradient = self._of_shard(op)
        gin = self.held["g", (-1, *op[2:])]
        yield from _worked(shard.embed_backward(gradient, piece, gin))

    def _first_pass(self, op: Op, shard: Any, piece: Piece) -> Work[None]:
        weight, _ = self._of_shard(op)
        out = self.held["x", (self.last + 1, *op[2:])]
        self.held["logits", op[1:]] = yield from _worked(shard.first_pass(weight, piece, out))
        self.held["g", (self.last, *op[2:])] = torch.zeros_like(out)

    def _second_pass(self, op: Op, shard: Any, piece: Piece) -> Work[None]:
        _, gradient = self._of_shard(op)
        statistics, saved, _ = self.held.pop(("logits", op[1:]))
        shard.second_pass(gradient, piece, saved, statistics)
        yield from ()

    def _of_shard(self, op: Op) -> tuple[Any, Any]:
        return self.weights[self.last + 1 + op.stage]

    def _own_share(self, whole: Tensor) -> Tensor:
        own = deal(len(whole), self.place.tensor, self.tensor)
        return whole[own.start : own.stop]

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
    return _of_every_op(lambda rank: rank.current, schedule, model, cell, lengths, dtype)


def computed_meanwhile(
    schedule: Schedule, model: ModelConfig, cell: CellShape, lengths: Sequence[int]
) -> list[dict[Op, list[tuple[str, int]]]]:
    """The calls of every op, each with the FLOPs of products until it is waited for."""

    def found(rank: Rank) -> list[tuple[str, int]]:
        return [(call.name, call.meanwhile) for call in rank.started]

    return _of_every_op(found, schedule, model, cell, lengths)


def _of_every_op(
    found: Callable[[Rank], Any],
    schedule: Schedule,
    model: ModelConfig,
    cell: CellShape,
    lengths: Sequence[int],
    dtype: torch.dtype = torch.float32,
) -> list[dict[Op, Any]]:
    layout = Layout.of(model, schedule, sum(lengths), dtype=dtype, cell=cell)
    microbatches = range(schedule.shape.microbatches)
    pieces = [[*pieces_of(mb, _batch(model, sum(lengths)), lengths, 1.0)] for mb in microbatches]
    spans = sorted(simulate(schedule).spans(), key=lambda span: (span.end, span.start))

    def work(threads: ThreadGroup) -> Work[dict[Op, Any]]:
        rank, results = Rank(layout, pieces, threads), {}
        with rank.products:
            for span in spans:
                yield from rank.run(span.op)
                results[span.op] = found(rank)
        return results

    return run_ranks(cell.ranks, work)


def _batch(model: ModelConfig, length: int) -> Microbatch:
    """One document; its last label does not count."""
    tokens = torch.arange(length).remainder(model.vocabulary).unsqueeze(0)
    labels = tokens.roll(-1, 1)
    labels[:, -1] = IGNORE
    return Microbatch(tokens, labels, ((0,),))

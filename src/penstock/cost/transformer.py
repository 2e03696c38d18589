"""FLOPs, bytes and seconds of every op of a transformer, slice by slice.

A slice of n tokens that ends at position e has n e - n^2 / 2 query-key pairs, so the same op costs
more further along the sequence. Per op, with L layers on its stage, P weights per layer, h hidden,
V vocabulary and q FLOPs per pair (cost/architecture.py), in FLOPs:

    F N   2 n P L + q pairs L                the head adds 2 n h V on the last stage
    R     2 n P L + q pairs L                the head is not run again
    I     2 n P L + 2 q pairs L              the head adds 6 n h V: see below
    W     2 n P L
    B     I + W
    S T   2 n h V / devices once or twice: S 1, T 2 where T starts the backward, else S 2, T 1

The head's forward keeps only a log-sum-exp per token; its input gradient makes the logits again and
adds the weight gradient at once (three products), because keeping the gradient of the logits for a
W would cost more memory than the layers do. So the head has no part in W. Embeddings (part of F and
I on the first stage, or E and D on shards) move bytes and cost no FLOPs; norms, activations and
rotations are not counted. G Z U V depend on the mesh and cost 0 here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.groups import rows_by_op
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.core.table import CODE, LETTERS
from penstock.cost.architecture import LSE_BYTES, ModelConfig
from penstock.cost.hardware import Hardware
from penstock.cost.model import SIZES, Link, Scaled, Ticks
from penstock.errors import ShapeError, nearest

PICOSECOND = Fraction(1, 10**12)
MOST_TICKS = 2**53
"""Bound on the time of all ops together; ten bits stay free for finer links."""
MOST_FLOPS = 2**62
"""Bound on one op, so that whole numbers of 64 bits hold it."""


def _by_kind(**passes: int) -> Ticks:
    return np.array([passes.get(letter, 0) for letter in LETTERS], np.int64)


_LINEAR = _by_kind(F=1, N=1, R=1, I=1, W=1, B=2)
_ATTENTION = _by_kind(F=1, N=1, R=1)
_ATTENTION_BACKWARD = _by_kind(I=2, B=2)
_HEAD = _by_kind(F=1, N=1, I=3, B=3)
_SHARD = {"F": _by_kind(), "S": _by_kind(S=2, T=1), "T": _by_kind(S=1, T=2)}
"""Products with one vocabulary shard, by who starts the backward."""
_LOOKUP = _by_kind(F=2, N=2, R=2, I=3, B=3)
"""Rows of h elements that an embedding moves per token: read, write; backward: read, add, write."""
_COPY = _by_kind(O=1, L=1)


class Work(NamedTuple):
    """How much of each kind of work every row of a schedule is; FLOPs, then bytes."""

    linear: Ticks
    attention: Ticks
    attention_backward: Ticks
    lookup: Ticks
    copy: Ticks

    @property
    def flops(self) -> Ticks:
        return self.linear + self.attention + self.attention_backward


@dataclass(frozen=True)
class TransformerCost:
    """A model on some hardware, its layers divided into stages and its sequences into slices."""

    model: ModelConfig
    hardware: Hardware
    lengths: tuple[tuple[int, ...], ...]
    """Tokens of each slice of each microbatch."""
    layers: tuple[int, ...]
    """Layers of each stage."""
    communication: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if sum(self.layers) != self.model.layers or min(self.layers, default=-1) < 0:
            raise ShapeError(
                f"stages of {', '.join(map(str, self.layers))} layers do not make up the "
                f"{self.model.layers} layers of the model",
                hint="give every layer to exactly one stage",
            )
        if min((min(lengths, default=0) for lengths in self.lengths), default=0) < 1:
            raise ShapeError("a slice has no tokens", hint="give each slice 1 token or more")
        tokens, most = max(map(sum, self.lengths)), max(self.layers)
        weights = 4 * tokens * (most * self.model.layer_weights + 2 * self.model.head_weights)
        if weights + most * self.model.pair_flops * tokens**2 > MOST_FLOPS:
            raise ShapeError(
                f"an op over {tokens:,} tokens would have more than {MOST_FLOPS:,} FLOPs",
                hint="shorten the sequence, or put fewer layers on a stage",
            )

    @classmethod
    def of(
        cls, shape: Shape, model: ModelConfig, hardware: Hardware, lengths: Sequence[int]
    ) -> "TransformerCost":
        """Every microbatch with the same slices; layers spread evenly, the first stages first."""
        each, over = divmod(model.layers, shape.stages)
        layers = tuple(each + (stage < over) for stage in range(shape.stages))
        return cls(model, hardware, (tuple(lengths),) * shape.microbatches, layers)

    @cached_property
    def _tokens(self) -> Ticks:
        """Tokens of each unit, and a 0 at the end for rows without one (unit -1)."""
        return np.array([n for lengths in self.lengths for n in (*lengths,)] + [0], np.int64)

    @cached_property
    def _twice_pairs(self) -> Ticks:
        """Query-key pairs of each unit, doubled to be whole: n (2 e - n)."""
        ends = [end for lengths in self.lengths for end in accumulate(lengths)]
        return self._tokens * (2 * np.array([*ends, 0], np.int64) - self._tokens)

    def work(self, schedule: Schedule) -> Work:
        """Exact amounts of work of each row of the schedule's table."""
        self._match(schedule.shape)
        kind, shape, model = schedule.table.kind, schedule.shape, self.model
        tokens, layers = self._tokens[schedule.unit], self._layers_of(schedule)
        pairs = layers * self._twice_pairs[schedule.unit] * (model.pair_flops // 2)
        head = _HEAD[kind] * self._at_last(schedule) * (shape.loss == "F") * model.vocabulary
        shard = _SHARD[shape.loss][kind] * -(-model.vocabulary // shape.devices)
        return Work(
            linear=2 * tokens * (_LINEAR[kind] * layers * model.layer_weights)
            + 2 * tokens * (head + shard) * model.hidden,
            attention=_ATTENTION[kind] * pairs,
            attention_backward=_ATTENTION_BACKWARD[kind] * pairs,
            lookup=self._rows_looked_up(schedule) * model.boundary_bytes,
            copy=_COPY[kind] * self._bytes(schedule, "act"),
        )

    def _rows_looked_up(self, schedule: Schedule) -> Ticks:
        """Embedding rows that move: on the first stage, or on shards that have 1/devices each."""
        kind, shape = schedule.table.kind, schedule.shape
        tokens = self._tokens[schedule.unit]
        own = -(-tokens // shape.devices)
        whole = _LOOKUP[kind] * tokens * ((schedule.table.stage == 0) & (shape.embed == "F"))
        return (
            whole + (kind == CODE["E"]) * (own + tokens) + (kind == CODE["D"]) * (tokens + 2 * own)
        )

    def durations(self, schedule: Schedule) -> Scaled:
        """Work over rate, rounded to a picosecond, or coarser where the step is very long."""
        work, rate = self.work(schedule), self.hardware
        copied = work.copy * _copied_share(schedule)
        seconds = (
            work.linear / rate.linear
            + work.attention / rate.attention
            + work.attention_backward / rate.attention_backward
            + work.lookup / rate.memory
            + copied / rate.host
        )
        tick, total = PICOSECOND, float(seconds.sum())
        while total / float(tick) >= MOST_TICKS:
            tick *= 10
        return Scaled(np.rint(seconds / float(tick)).astype(np.int64), tick)

    def amounts(self, schedule: Schedule, size: str) -> Scaled:
        """Bytes of a buffer of each row."""
        if size not in SIZES:
            raise ShapeError(f"there is no size called {size!r}", hint=nearest(size, SIZES))
        self._match(schedule.shape)
        return Scaled(self._bytes(schedule, size), Fraction(1))

    def _bytes(self, schedule: Schedule, size: str) -> Ticks:
        """Bytes per token x tokens; `act` includes what the weight gradient needs of it."""
        model, layers = self.model, self._layers_of(schedule)
        if size == "ckpt":  # the first stage starts from tokens, which the batch holds anyway
            started = (schedule.table.stage > 0) | (schedule.shape.embed == "E")
            per_token = started * model.boundary_bytes
        elif size == "act":
            # input and output of the last norm, and the loss's log-sum-exp
            end = 2 * model.boundary_bytes + LSE_BYTES * (schedule.shape.loss == "F")
            per_token = layers * model.saved_bytes + end * self._at_last(schedule)
        else:
            per_token = layers * (model.stash_bytes if size == "stash" else model.kv_bytes)
        return np.asarray(per_token * self._tokens[schedule.unit], np.int64)

    def link(self, source: int, target: int) -> Link:
        return Link(self.hardware.latency, Fraction(1, self.hardware.link))

    def loan(self, op: Op) -> Fraction:
        """Time of the pairs of `op` with one earlier slice of average length."""
        lengths = self.lengths[op.mb]
        pairs = Fraction(lengths[op.slice] * sum(lengths[: op.slice]), max(op.slice, 1))
        forward = op.kind in "FNR"
        rate = self.hardware.attention if forward else self.hardware.attention_backward
        flops = pairs * self.layers[op.stage] * self.model.pair_flops * (1 if forward else 2)
        return round(flops / rate / PICOSECOND) * PICOSECOND

    def _layers_of(self, schedule: Schedule) -> Ticks:
        # Shards are numbered by device, which may lie beyond the stages; they have no layers.
        stage = np.minimum(schedule.table.stage, len(self.layers) - 1)
        return np.array(self.layers, np.int64)[stage]

    def _at_last(self, schedule: Schedule) -> NDArray[np.bool_]:
        return np.asarray(schedule.table.stage == len(self.layers) - 1)

    def _match(self, shape: Shape) -> None:
        counts = tuple(map(len, self.lengths))
        if (shape.stages, shape.slices) != (len(self.layers), counts) or shape.weightless:
            raise ShapeError(
                f"the cost is for {len(self.layers)} stages of whole layers and "
                f"{sum(counts)} slices in {len(counts)} microbatches, but the schedule has "
                f"{shape.stages} stages ({len(shape.weightless)} weightless) and {shape.units} "
                f"slices in {shape.microbatches} microbatches",
                hint="give lengths and layers that match the schedule's shape",
            )


def _copied_share(schedule: Schedule) -> NDArray[np.float64]:
    """Share of the activation that each offload or load moves."""
    share = np.ones(len(schedule.table))
    if schedule.shares:
        rows = rows_by_op(schedule.table)
        for op, part in schedule.shares:
            share[rows.get(op, [])] = float(part)
    return share

"""FLOPs and bytes of every op of a transformer, slice by slice.

A slice of n tokens that ends at position e has n e - n^2 / 2 query-key pairs, so the same op costs
more further along the sequence, but for layers with a window (cost/attention_pairs.py). Per op,
with L layers on its stage, p FLOPs per token in the weights of a layer, q FLOPs per pair (sums over
the records of a layer, arch/layers), h hidden and V vocabulary, in FLOPs:

    F N R n p L + q pairs L                  the head has no part in it: see below
    I     n p L + 2 q pairs L                the head adds 6 n h V on the last stage
    W     n p L                              adapters alone where weights are frozen (arch/lora.py)
    B     I + W
    S T   2 n h V / devices once or twice: S 1, T 2 where T starts the backward, else S 2, T 1

The head's input gradient computes the logits, the loss and both gradients at once (three products),
because keeping the gradient of the logits for a W would cost more memory than the layers do. So the
head has no part in F and none in W. Embeddings (part of F and I on the first stage, or E and D on
shards) move bytes and cost no FLOPs; norms, activations and rotations are not counted. G Z U V
depend on the mesh and cost 0 here. Stages between attentions are counted in cost/cut_workload.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from penstock.arch.config import ModelConfig
from penstock.arch.layer_split import split_layers
from penstock.core.homes import stage_column
from penstock.core.lifetimes import GIVEN, TEMPORARY
from penstock.core.ops import SHARD_KINDS
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost import passes
from penstock.cost.layer_sums import LayerSums
from penstock.cost.loan_bytes import with_loan_bytes
from penstock.cost.most_work import refuse_inexact, refuse_long
from penstock.cost.passes import Counts
from penstock.cost.shard_bytes import ShardBytes
from penstock.cost.temporary import HOST_KERNELS, KernelNeeds, forward_bytes, loss_bytes
from penstock.cost.work_amounts import WorkAmounts
from penstock.errors import ShapeError

_WITH_KEYS = {"act": 1, "kv": -1}
"""Sizes between which keys and values go that live and die with the activation."""
_TAKING_KEYS = frozenset("RO")
"""Kinds of ops that make or move an activation with its keys and values."""


@dataclass(frozen=True)
class Workload(LayerSums):
    """A model whose layers are divided into stages and whose sequences are cut into slices."""

    model: ModelConfig
    lengths: tuple[tuple[int, ...], ...]
    """Tokens of each slice of each microbatch."""
    layers: tuple[int, ...]
    """Layers of each stage."""
    needs: KernelNeeds = field(default=HOST_KERNELS, kw_only=True)
    """What the kernels need that compute it."""

    def __post_init__(self) -> None:
        if sum(self.layers) != self.model.layers or min(self.layers, default=-1) < 0:
            raise ShapeError(
                f"stages of {', '.join(map(str, self.layers))} layers do not make up the "
                f"{self.model.layers} layers of the model",
                hint="give every layer to exactly one stage",
            )
        if min((min(lengths, default=0) for lengths in self.lengths), default=0) < 1:
            raise ShapeError("a slice has no tokens", hint="give each slice 1 token or more")
        self._refuse_brackets()
        refuse_long(self.model, self.layers, max(map(sum, self.lengths)))

    def _refuse_brackets(self) -> None:
        """Refuse a model that leaves out tokens, unless they are counted."""
        if self.model.subsampling is not None:
            raise ShapeError(
                "the model leaves out tokens: neither cells nor unequal documents are counted so",
                hint="take one rank for each device, and sequences of one length",
            )

    @classmethod
    def of(cls, shape: Shape, model: ModelConfig, lengths: Sequence[int]) -> "Workload":
        """Every microbatch with the same slices; layers as the shape cuts them, or evenly."""
        split = split_layers(model.layers, shape.stages, shape.cut(model.layers))
        return cls(model, (tuple(lengths),) * shape.microbatches, tuple(map(len, split)))

    def applied_to(self, schedule: Schedule) -> Schedule:
        """The schedule with what its transfers carry: bytes per boundary, which is as large as the
        longest microbatch, and slices weighed by tokens."""
        self.refuse_other(schedule.shape)
        longest = max(map(sum, self.lengths))
        shape = replace(
            schedule.shape,
            boundary_bytes=self.boundaries(longest),
            slice_share=tuple(tuple(Fraction(n, longest) for n in ns) for ns in self.lengths),
        )
        return replace(schedule, shape=shape, derived={})

    def boundary_bytes(self, tokens: int) -> int:
        """What a rank hands on to the next stage, of so many tokens."""
        return tokens * self.model.boundary_bytes

    def boundaries(self, tokens: int) -> tuple[int, ...]:
        """The same behind each stage but the last."""
        return (self.boundary_bytes(tokens),) * (len(self.layers) - 1)

    def least_message(self, tokens: int) -> int:
        """What any stage hands on at least, of so many tokens."""
        return self.boundary_bytes(tokens)

    @property
    def boundary_parts(self) -> int:
        """Parts of a boundary of all tokens that messages of an estimate are counted in."""
        return 1

    def elements(self, stage: int) -> tuple[int, int]:
        """Matrices and vectors of a stage's layers that are trained, the model's ends apart."""
        every = int(self.summed("layer_trained")[stage])
        vectors = int(self.summed("layer_vectors")[stage]) if self.part.trains_all else 0
        return every - vectors, vectors

    def frozen(self, stage: int) -> int:
        """Elements of a stage's layers that are not trained."""
        return int(self.summed("layer_frozen")[stage])

    @property
    def weightless(self) -> frozenset[int]:
        """Stages of attention alone."""
        return frozenset()

    @property
    def attended(self) -> ModelConfig:
        """The same with the heads that a rank attends with."""
        return self.model

    def work(self, schedule: Schedule) -> WorkAmounts:
        """Exact amounts of work of each row of the schedule's table."""
        self.refuse_other(schedule.shape)
        refuse_inexact(self.model, self.layers, max(map(sum, self.lengths)))
        kind, stage = schedule.table.kind, stage_column(schedule)
        tokens, pairs = self.tokens[schedule.unit], self.attended_half_pairs(schedule)
        return WorkAmounts(
            *(
                table[kind, stage] * amount
                for table, amount in zip(
                    self.rates(schedule.shape), (tokens, pairs, pairs, tokens, tokens)
                )
            )
        )

    def rates(self, shape: Shape) -> WorkAmounts:
        """Work of each kind of op on each stage: attention per half pair of a layer, the others per
        token."""
        model, layers = self.part, self.met
        ends, row = passes.end_passes(model, shape.loss), model.embedding.row_bytes
        head = np.outer(ends.head, self._at_last) * (shape.loss == "F") * model.vocabulary
        adapters = np.outer(passes.HEAD_ADAPTERS, self._at_last) * model.head_adapter_flops
        shard = ends.shard[:, None] * -(-model.vocabulary // shape.devices)
        first = (np.arange(len(layers)) == 0) & (shape.embed == "F")
        on_shard = passes.LOOKUP_ALL * row + ends.lookup_own * -(-row // shape.devices)
        # of one layer: `attended_half_pairs` counts those of all layers of a stage
        half_pair = np.full(len(layers), self.attended.attending_kind.pair_flops // 2)
        return WorkAmounts(
            linear=self.layer_products + (head + shard) * model.head.flops_per_logit + adapters,
            attention=np.outer(passes.ATTENTION_FORWARD, half_pair),
            attention_backward=np.outer(passes.ATTENTION_BACKWARD, half_pair),
            lookup=np.outer(ends.lookup, first) * row + on_shard[:, None],
            copy=np.outer(passes.COPY, self._copied_per_token(shape)),
        )

    def bytes(self, schedule: Schedule, size: str) -> Counts:
        """Bytes of a buffer of each row: bytes per token x tokens.

        `act` includes what the weight gradient needs of the activation; `stash` is all that waits
        for the weight gradient. `kv` and `dkv` are those of the row's own slice.
        """
        self.refuse_other(schedule.shape)
        shard = ShardBytes(self.part, schedule.shape.devices)
        if size == TEMPORARY:
            passes = schedule.table.of_kinds("ST")
            return self._temporary(schedule) + passes * shard.running(self.tokens)[schedule.unit]
        if size == "logits":
            return np.asarray(shard.kept * self.tokens[schedule.unit], np.int64)
        if size == GIVEN:
            return self._given(schedule)
        held = self._kept(schedule, size)
        if size in _WITH_KEYS and schedule.table.kinds & _TAKING_KEYS:
            held += _WITH_KEYS[size] * self._with_activation(schedule)
        if size == "act" and self.model.attending_kind.sliced_bytes:
            held += self._kept_of_slices(schedule)
        return np.asarray(held, np.int64)

    def _kept(self, schedule: Schedule, size: str) -> Counts:
        """The same without what depends on how sequences are cut and computed again."""
        per_token = self._bytes_per_token(schedule.shape, size)
        tokens = self.tokens if size != "dkv" else self.tokens * self._followed
        return np.asarray(per_token[stage_column(schedule)] * tokens[schedule.unit], np.int64)

    def layer_bytes(self, size: str) -> Counts:
        """Bytes of a layer's activations (`act`), keys and values (`kv`) or `input`, by unit."""
        name = {"act": "saved_bytes", "kv": "kv_bytes", "input": "boundary_bytes"}[size]
        return self.tokens * int(getattr(self.part, name))

    def _given(self, schedule: Schedule) -> Counts:
        """Bytes of what ends of the model and shards give each other; shards give whole tokens."""
        handed = np.array([self.boundary_bytes(int(n)) for n in self._slice_tokens], np.int64)
        whole = self.tokens * self.model.boundary_bytes
        passes = schedule.table.of_kinds(SHARD_KINDS)
        return np.where(passes, whole[schedule.unit], handed[schedule.unit])

    def _copied_per_token(self, shape: Shape) -> Counts:
        """Bytes of one token that a copy to the host moves: an activation, with keys and values
        where these live and die with it."""
        sizes = ("act", "sliced" if self.cut.any() else "kv")
        return np.asarray(sum(self._bytes_per_token(shape, each) for each in sizes), np.int64)

    def _kept_of_slices(self, schedule: Schedule) -> Counts:
        """Bytes that slices keep beyond what whole sequences keep."""
        per_token = self.met_sum("sliced_bytes")
        tokens = (self.tokens * self.cut)[schedule.unit]
        return np.asarray(per_token[stage_column(schedule)] * tokens, np.int64)

    def _with_activation(self, schedule: Schedule) -> Counts:
        """Bytes of keys and values that are made again with the activation, or moved with it: those
        of a whole sequence, which no other slice needs, live and die with it."""
        table, unit = schedule.table, schedule.unit
        again = np.zeros((len(self.layers), len(self.tokens)), np.bool_)
        rows = np.flatnonzero(table.of_kinds(_TAKING_KEYS))
        again[table.stage[rows], unit[rows]] = True
        whole = (1 - self.cut)[unit] * again[stage_column(schedule), unit]
        return np.asarray(self._kept(schedule, "kv") * whole)

    def _temporary(self, schedule: Schedule) -> Counts:
        """Bytes that each op needs only while it runs."""
        model, table = self.model, schedule.table
        tokens, stage = self.tokens[schedule.unit], stage_column(schedule)
        forward, backward = table.of_kinds("FNR"), table.of_kinds("BI")
        loss = np.array([loss_bytes(model, int(n)) for n in self.tokens])[schedule.unit]
        loss *= self._at_last[stage] * (schedule.shape.loss == "F")
        needed = self.needs.inside
        highest = [needed(each.part) * (np.array(each.layers) > 0) for each in self.of_kinds]
        inside = np.maximum(np.max(highest, axis=0)[stage] * tokens, loss)
        if schedule.shape.loss != "F":  # beside what shards give: what the last norm makes of it
            inside += model.boundary_bytes * self._at_last[stage] * tokens
        # As an I goes on, what waits for W takes the place of what was kept.
        more = self.summed_up(lambda part: max(0, part.stash_bytes - part.saved_bytes))[stage]
        outside = forward_bytes(model) * tokens
        found = outside * forward + inside * backward + more * tokens * table.of_kinds("I")
        attending = self.unbounded + self.windowed
        return with_loan_bytes(found, schedule, model.attending_kind, self.lengths, attending)

    def _bytes_per_token(self, shape: Shape, size: str) -> Counts:
        """Bytes of one token's buffer on each stage."""
        model, layers = self.model, self.met
        if size == "ckpt":  # the first stage starts from tokens, which the batch holds anyway
            started = (np.arange(len(layers)) > 0) | (shape.embed == "E")
            return np.asarray(started * model.boundary_bytes, np.int64)
        if size == "act":  # and what the last layer gives, which the norm behind it keeps
            return np.asarray(self.met_sum("saved_bytes") + model.boundary_bytes * self._at_last)
        return self.met_sum("kv_bytes" if size == "dkv" else f"{size}_bytes")

    @cached_property
    def tokens(self) -> Counts:
        """Tokens of each unit, and a 0 at the end for rows without one (unit -1)."""
        return self._slice_tokens

    @cached_property
    def cut(self) -> Counts:
        """1 for units of a sequence that is cut: only their keys are met by other slices."""
        return np.array([*(int(len(ns) > 1) for ns in self.lengths for _ in ns), 0], np.int64)

    @cached_property
    def _followed(self) -> Counts:
        """1 for slices that others follow: these leave gradients for their keys."""
        return np.array([*(n for ns in self.lengths for n in [*[1] * (len(ns) - 1), 0]), 0])

    @cached_property
    def _at_last(self) -> Counts:
        """1 on the last stage, 0 on the others."""
        return np.array([*[0] * (len(self.layers) - 1), 1], np.int64)

    def refuse_other(self, shape: Shape) -> None:
        """Refuse a shape that this workload is not for."""
        counts = tuple(map(len, self.lengths))
        wanted = (len(self.layers), counts, self.weightless)
        if (shape.stages, shape.slices, shape.weightless) != wanted:
            raise ShapeError(
                f"the workload has {len(self.layers)} stages ({len(self.weightless)} weightless) "
                f"and {sum(counts)} slices in {len(counts)} microbatches, but the schedule has "
                f"{shape.stages} stages ({len(shape.weightless)} weightless) and {shape.units} "
                f"slices in {shape.microbatches} microbatches",
                hint="give lengths and layers that match the schedule's shape",
            )

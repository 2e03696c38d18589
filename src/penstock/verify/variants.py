"""Circumstances under which a schedule is run, each of which can break a runtime on its own.

A variant changes one thing about a run: the model, the batch, how layers or sequences are cut, the
schedule itself. Variants share models and batches wherever they can, so that the oracle has few
answers to work out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from penstock.arch.cell_shape import ONE_RANK, CellShape
from penstock.arch.config import ModelConfig, with_layers
from penstock.arch.lora import Lora
from penstock.arch.mesh_shape import MeshShape
from penstock.check import check
from penstock.core.loans import helps_of
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.plan.slices import Lengths
from penstock.run.program.token_groups import MicrobatchGroups, sliced_groups
from penstock.run.program.unsupported import refuse_beside_groups, refuse_loans_in_cells
from penstock.transform import split_backward
from penstock.verify.changes import (
    alone_in_turn,
    as_it_is,
    equal_layers,
    even_lengths,
    ragged_lengths,
    unequal_lengths,
    unequal_totals,
    uneven_layers,
    whole_cell,
    with_few_buffers,
    with_recompute,
    with_slices,
)
from penstock.verify.scale import CPU, CUDA, TrialScale


@dataclass(frozen=True)
class Batch:
    """Sequences to train on; what is given in turn is repeated over microbatches or sequences."""

    microbatches: int
    """Of all replicas together."""
    rows: int = 1
    length: int = CPU.length
    ignored: tuple[int, ...] = (1,)
    """Labels at the end of the sequences that do not count, in turn for each microbatch."""
    documents: tuple[tuple[int, ...], ...] = ((0,),)
    """Where documents start, in turn for each sequence; those behind its end are not there."""
    lengths: tuple[int, ...] = ()
    """Tokens of the sequences of each microbatch, where they are not all of one length."""


@dataclass(frozen=True)
class TrialWork:
    """A model and a batch: all that the right answer depends on."""

    model: ModelConfig
    batch: Batch
    slices: tuple[Lengths, ...] = ()
    """Of each microbatch, where a model leaves out tokens: each slice keeps its own share."""


@dataclass(frozen=True, eq=False)
class Trial:
    """One run to be compared."""

    variant: str
    schedule: Schedule
    """Of one replica."""
    work: TrialWork
    layers: tuple[int, ...]
    """Layers of each stage."""
    lengths: tuple[Lengths, ...]
    """Slices of each microbatch of a replica."""
    replicas: int
    dtype: str
    scale: TrialScale = CPU
    cell: CellShape = ONE_RANK
    shard: str = "none"
    """What ranks that hold the same stage share (run/step/sharding.py)."""
    groups: tuple[MicrobatchGroups, ...] = ()
    """Of each microbatch of a replica, where ranks of a cell form groups."""

    @property
    def processes(self) -> int:
        return self.replicas * self.schedule.shape.devices * self.cell.ranks

    @property
    def bitwise(self) -> bool:
        """Whether one process adds up the same numbers in the same order, and that decides bits.

        Replicas, ranks of a cell and vocabulary shards do not: each sums its own share first. Nor
        does attention of which another device computes a part. Split backwards are looked at as
        such: a B between an I and its W adds to the same gradients as that W.
        """
        shared = self.replicas * self.cell.ranks > 1 or self.schedule.shape.shards > 0
        if self.scale.claim != "bits" or shared or helps_of(self.schedule):
            return False
        return self.schedule.derive("adds in one order", _in_one_order)


def _in_one_order(schedule: Schedule) -> bool:
    return check(split_backward(schedule)).accumulation == "ascending"


@dataclass(frozen=True)
class Variant:
    """One circumstance: what is different from a plain run."""

    name: str
    text: str
    tied: bool = False
    biased: bool = False
    rows: int = 1
    ignored: tuple[int, ...] = (1,)
    documents: tuple[tuple[int, ...], ...] = ((0,),)
    more_layers: int = 0
    split: Callable[[int, int], tuple[int, ...]] = equal_layers
    cut: Callable[[int, int, int], Lengths] = even_lengths
    transform: Callable[[Schedule], Schedule] = as_it_is
    replicas: int = 1
    dtype: str = "float64"
    scale: TrialScale = CPU
    cell: CellShape = ONE_RANK
    shard: str = "none"
    group: Callable[[Sequence[int], int, int], MicrobatchGroups] = whole_cell
    lora: Lora | None = None

    @property
    def halved(self) -> bool:
        """Whether it runs a schedule of half the depth, on as many processes."""
        return self.replicas * self.cell.ranks > 1

    def trial(self, schedule: Schedule) -> Trial:
        """A run of this schedule under this variant."""
        changed = self.transform(schedule)
        refuse_loans_in_cells(changed, self.cell)
        shape = changed.shape
        layers = max(self.scale.layers, shape.stages) + self.more_layers
        if shape.weightless:
            layers = len(shape.weightless)
        length = max(self.scale.length, self.scale.slice_length * max(shape.slices))
        cuts = tuple(self.cut(length, count, mb) for mb, count in enumerate(shape.slices))
        groups = self._groups(changed, cuts)
        if groups:
            cuts = tuple(map(sliced_groups, groups, shape.slices))
        batch = Batch(
            self.replicas * shape.microbatches,
            self.rows,
            length,
            self.ignored,
            self.documents,
            unequal_totals(cuts, length) * self.replicas,
        )
        model = self._model(layers)
        work = TrialWork(model, batch, cuts * self.replicas if model.subsampling else ())
        split = () if shape.weightless else self.split(layers, shape.stages)
        if shape.weightless and self.more_layers:
            raise ShapeError(
                "a model cut at its attention has no stages of several layers",
                hint="leave this variant out",
            )
        ranks = (self.replicas, self.dtype, self.scale, self.cell, self.shard, groups)
        return Trial(self.name, changed, work, split, cuts, *ranks)

    def _groups(self, schedule: Schedule, cuts: Sequence[Lengths]) -> tuple[MicrobatchGroups, ...]:
        """Groups of each microbatch, refused where the schedule cannot have them."""
        starts = [self.documents[mb % len(self.documents)] for mb in range(len(cuts))]
        found = tuple(self.group(starts[mb], sum(cut), mb) for mb, cut in enumerate(cuts))
        if not any(found):
            return ()
        refuse_beside_groups(schedule, self.rows)
        return found

    def _model(self, layers: int) -> ModelConfig:
        own, biased = with_layers(self.scale.model, layers), self.biased
        plain = replace(own, tied=self.tied or own.tied, lora=self.lora)
        bias, norm = biased or own.qkv_bias, biased or own.qk_norm
        return replace(plain, qkv_bias=bias, qk_norm=norm)


def variants_of(scale: TrialScale) -> tuple[Variant, ...]:
    """The variants that every device runs, in the order of the table."""
    variant = partial(Variant, scale=scale, dtype=scale.precise)
    single = "in single precision, bit for bit where the order allows"
    return (
        variant("float32", single, dtype="float32"),
        variant("tied", "embedding and head are one matrix; biases and norms of heads", True, True),
        variant(
            "layers", "stages of unequal numbers of layers", more_layers=2, split=uneven_layers
        ),
        variant(
            "labels",
            "microbatches in which unequal numbers of labels count, none in some",
            rows=2,
            ignored=scale.ignored,
        ),
        variant(
            "ragged",
            "slices of unequal lengths, other ones in each microbatch",
            cut=ragged_lengths,
            transform=with_slices,
        ),
        variant(
            "documents",
            "several documents in a sequence, across the ends of slices",
            rows=2,
            documents=scale.documents,
        ),
        variant(
            "lengths",
            "microbatches of unequal lengths, from one token for each slice on, with documents",
            cut=unequal_lengths,
            documents=scale.documents,
        ),
        *_on_two_ranks(variant, scale.documents),
        variant("lora", "adapters on every matrix, tied weights frozen", True, lora=Lora(3, 2.0)),
        variant(
            "recompute", "every forward run again before its backward", transform=with_recompute
        ),
    )


def _on_two_ranks(
    variant: Callable[..., Variant], documents: tuple[tuple[int, ...], ...]
) -> tuple[Variant, ...]:
    """Those in which two ranks stand where one stands otherwise."""
    return (
        variant("replicas", "two replicas of a pipeline of half the depth", replicas=2),
        variant(
            "shard",
            "the same, and the replicas share the optimizer",
            replicas=2,
            shard="optimizer",
            tied=True,
        ),
        variant(
            "full",
            "the same, and they share weights and gradients too, gathered into one buffer",
            replicas=2,
            shard="full",
            tied=True,
            transform=with_few_buffers,
        ),
        variant(
            "tensor",
            "half the depth, two ranks share the matrices of each device",
            cell=CellShape(tensor=2),
        ),
        variant(
            "ulysses",
            "half the depth, two ranks share the tokens of each slice and exchange them for heads",
            cell=CellShape(ulysses=2),
        ),
        variant(
            "groups",
            "the same, and in every second microbatch each of them has documents of its own",
            cell=CellShape(ulysses=2),
            documents=documents,
            group=alone_in_turn,
        ),
        variant(
            "ring",
            "half the depth, two ranks share the tokens of each slice, keys and values go round",
            cell=CellShape(ring=2),
        ),
    )


def on_mesh(variants: Sequence[Variant], mesh: MeshShape, shard: str) -> tuple[Variant, ...]:
    """Those that are not about a mesh of their own, on this one."""
    return tuple(
        replace(variant, replicas=mesh.replicas, cell=mesh.cell, shard=shard)
        for variant in variants
        if not variant.halved
    )


def with_low_precision(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """These, and in bfloat16 those that decide which attention is taken.

    Whole slices go to cuDNN, short ones and documents to flash; neither serves 32 bits.
    """
    names = {"float32": "bfloat16", "ragged": "bfloat16-ragged", "documents": "bfloat16-documents"}
    low = (
        replace(variant, name=names[variant.name], text=f"{variant.name}, in bfloat16")
        for variant in variants
        if variant.name in names
    )
    return (*variants, *(replace(variant, dtype="bfloat16") for variant in low))


VARIANTS = variants_of(CPU)
"""Every variant on the CPU."""
ON_DEVICE = {"cpu": VARIANTS, "cuda": with_low_precision(variants_of(CUDA))}
"""Every variant, by the kind of device."""

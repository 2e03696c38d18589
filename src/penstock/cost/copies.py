"""What ranks that hold the same stage send each other: copies of it add up their gradients.

Copies are in all replicas, and in a cell all ranks that share the tokens of a slice. Each `Z` of a
schedule adds up the gradient of a stage; what else moves depends on what copies share:

                Z, in 32 bits           G and U, in the type that is computed in
    none        2 (c - 1)/c elements    nothing
    optimizer   (c - 1)/c elements      U: (c - 1)/c elements, the new values
    full        (c - 1)/c elements      G: (c - 1)/c elements, before the stage is used

for c copies. Of parameters that several tensor ranks hold, each of these may have a part of the
gradient; those are added up among the holders first. The sum over the two stages of a tied weight
is one of devices, and not counted here.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from penstock.arch.cell_shape import CellPlace
from penstock.arch.config import ModelConfig
from penstock.arch.layers.parameter import Parameter
from penstock.arch.layers.record import wide_bytes
from penstock.arch.ownership import Ownership, owned_elements
from penstock.arch.parameter_layout import ParameterLayout
from penstock.arch.parameters import (
    EMBEDDING,
    HEAD,
    between_parameters,
    shard_layout,
    stage_layout,
    stage_parameters,
)
from penstock.cost.rank_share import RankShare

Shard = Literal["none", "optimizer", "full"]
GATHERS_IN: Mapping[str, str] = {"optimizer": "UA", "full": "G"}
"""The kinds of ops in which values go from their owners to all."""


class CopiesSent(NamedTuple):
    """Bytes that a rank sends in an op of a stage."""

    copies: Fraction = Fraction(0)
    """To ranks that hold the same weights."""
    holders: Fraction = Fraction(0)
    """To tensor ranks that hold some of the same parameters."""


class StageSizes(NamedTuple):
    """What is counted of the parameters that a rank has of a stage, however many have copies."""

    elements: int
    """Of gradients."""
    several: int
    """Those of them with parts that several tensor ranks hold."""
    parted: tuple[tuple[int, int], ...]
    """Holders of which each has a part of a gradient, and elements of these."""
    borders: tuple[int, ...]
    """What lies between two of these is dealt to owners together; the last is the end."""
    frozen: int
    """Elements that are not trained."""

    @classmethod
    def of(
        cls, layout: ParameterLayout, parted_over: Collection[str], apart: Collection[str]
    ) -> "StageSizes":
        """Of the parameters of a stage, of which some are dealt by themselves."""
        parts, parted = layout.parts.values(), Counter[int]()
        for part in parts:
            if part.is_parted(parted_over):
                parted[len(part.holders)] += part.elements
        several = [part for part in parts if any(len(holders) > 1 for holders in part.among)]
        return cls(
            layout.elements,
            sum(part.elements for part in several),
            tuple(parted.items()),
            Ownership(layout, apart=apart).borders,
            layout.frozen.stored if layout.frozen else 0,
        )


SizeLike = tuple[int | range, bool, bool]
"""Layers of a stage, and whether it is the first and the last."""


class KnownSent(NamedTuple):
    """What has been asked for, by kind of op and stage."""

    exact: dict[tuple[str, SizeLike], CopiesSent]
    as_floats: dict[tuple[str, SizeLike], tuple[float, float]]


KnownSizes = dict[SizeLike, StageSizes]


@dataclass(frozen=True)
class Copies:
    """One of `count` ranks that hold the same stages."""

    share: RankShare
    layers: tuple[int, ...]
    """Layers of each stage."""
    count: int = 1
    index: int = 0
    shard: Shard = "none"
    on_shards: tuple[str, ...] = ()
    """Vocabulary layers that are cut into shards for all devices."""
    devices: int = 1
    weightless: frozenset[int] = frozenset()
    """Stages of attention alone: the others are between two of them."""

    def sent(self, kind: str, stage: int) -> CopiesSent:
        """What the rank sends in an op of a kind."""
        key, known = (kind, self._size_like(stage)), self._known.exact
        if key not in known:
            known[key] = self._work_out(kind, self.like(stage))
        return known[key]

    def bytes_sent(self, kinds: Sequence[str], stages: Sequence[int]) -> list[tuple[float, float]]:
        """The same of ops of each kind on each stage, as floats, which take longer to make of
        fractions than to look up."""
        known, likes = self._known.as_floats, [(at, self._size_like(at)) for at in stages]
        for kind in kinds:
            for stage, like in likes:
                if (kind, like) not in known:
                    sent = self.sent(kind, stage)
                    known[kind, like] = float(sent.copies), float(sent.holders)
        return [known[kind, like] for kind in kinds for _, like in likes]

    @cached_property
    def _known(self) -> KnownSent:
        """What has been asked for, of layouts whose copies share as much."""
        if self.weightless:
            return KnownSent({}, {})
        on_shards = (self.on_shards, self.devices if self.on_shards else 0)
        return _known_sent(_holding(self.share), self.count, self.index, self.shard, on_shards)

    def _size_like(self, stage: int) -> SizeLike:
        """What stages that send the same have in common: as many layers, or the same ones where
        layers differ, the ends of the model apart; shards stand behind all stages, and are told
        from them by layers below 0."""
        last = len(self.layers) - 1
        if self.weightless:
            return (stage, False, False)
        if stage > last:
            return (last - stage, False, False)
        own = self._split[stage] if self._differ else self.layers[stage]
        return (own, stage == 0, stage == last)

    def like(self, stage: int) -> int:
        """Stages between the ends are alike, so the first of its size stands for each, unless
        layers differ."""
        last = len(self.layers) - 1
        if self.weightless or self._differ or not 0 < stage < last:
            return stage
        return self.layers.index(self.layers[stage], 1)

    @property
    def _differ(self) -> bool:
        """Whether layers have different parameters."""
        return bool(self.share.model.blocks) or self.share.model.subsampling is not None

    def _work_out(self, kind: str, stage: int) -> CopiesSent:
        if kind == "Z":
            reduced = self._summed if self.shard == "none" else self._scattered
            return CopiesSent(reduced(stage), self._held_in_parts(stage))
        gathers = kind in GATHERS_IN.get(self.shard, "")
        return CopiesSent(self._gathered(stage) if gathers else Fraction(0))

    def _summed(self, stage: int) -> Fraction:
        """A sum for all. Parameters that several tensor ranks hold are added up once more, apart,
        where the order of a sum could differ between them."""
        sizes = self._sizes(stage)
        again = sizes.several if self.count > 2 else 0
        return _sum_for_all(sizes.elements + again, self.count) * self._wide

    def _scattered(self, stage: int) -> Fraction:
        """All but the own ranges, to their owners."""
        borders = self._sizes(stage).borders
        return Fraction((borders[-1] - self._owned(borders)) * self._wide)

    def _gathered(self, stage: int) -> Fraction:
        """The own ranges, to each of the others; of what is frozen only where ranks have ranges of
        it."""
        sizes = self._sizes(stage)
        frozen = self._owned((0, sizes.frozen)) if self.shard == "full" else 0
        values = (self._owned(sizes.borders) + frozen) * self.share.model.element_bytes
        return Fraction((self.count - 1) * values)

    def _held_in_parts(self, stage: int) -> Fraction:
        sums = (_sum_for_all(elements, ranks) for ranks, elements in self._sizes(stage).parted)
        return sum(sums, Fraction(0)) * self._wide

    def _owned(self, borders: Sequence[int]) -> int:
        return owned_elements(borders, self.index, self.count)

    def _sizes(self, stage: int) -> StageSizes:
        """What is counted of the parameters of a stage, or of a shard behind all stages."""
        like = self._size_like(stage)
        if like not in self._known_sizes:
            layout = self.layout(stage)
            apart = (EMBEDDING, HEAD) if self.share.model.tied and not layout.shared else ()
            self._known_sizes[like] = StageSizes.of(layout, self.share.cell.parted, apart)
        return self._known_sizes[like]

    @cached_property
    def _known_sizes(self) -> KnownSizes:
        """What has been asked for, of layouts of the same ranks."""
        shards = self.devices if self.on_shards else 0
        if self.weightless:
            return {}
        return _known_sizes(_holding(self.share), self.on_shards, shards)

    def layout(self, stage: int) -> ParameterLayout:
        """Where the parameters of a stage lie, or of a shard behind all stages."""
        model, stages = self.share.model, len(self.layers)
        index, ranks = self.share.place.tensor, self.share.cell.tensor
        if stage >= stages:
            device = range(stage - stages, self.devices)
            return shard_layout(model, self.on_shards, device, range(index, ranks))
        if self.weightless:
            return stage_layout(model, self._between(stage), index, ranks)
        rank, place = (index, ranks), (stage, stages)
        return _layout_of(model, self._split[stage], place, frozenset(self.on_shards), rank)

    def _between(self, stage: int) -> Mapping[str, Parameter]:
        return {} if stage in self.weightless else between_parameters(self.share.model, stage // 2)

    @cached_property
    def _split(self) -> list[range]:
        ends = [*accumulate(self.layers, initial=0)]
        return [range(*bounds) for bounds in pairwise(ends)]

    @property
    def _wide(self) -> int:
        """Bytes of an element of a gradient."""
        return wide_bytes(self.share.model.element_bytes)


@lru_cache(maxsize=256)
def _layout_of(
    model: ModelConfig,
    layers: range,
    place: tuple[int, int],
    on_shards: frozenset[str],
    rank: tuple[int, int],
) -> ParameterLayout:
    """Where the parameters of layers lie on a stage, by its number and that of all."""
    every = stage_parameters(model, layers, *place)
    parameters = {name: each for name, each in every.items() if name not in on_shards}
    return stage_layout(model, parameters, *rank)


@lru_cache(maxsize=1024)
def _holding(share: RankShare) -> RankShare:
    """A rank as far as its parameters go: ranks that share tokens hold the same ones."""
    cell = replace(share.cell, ulysses=1, ring=1)
    return replace(share, cell=cell, place=CellPlace(share.place.tensor))


@lru_cache(maxsize=1024)
def _known_sent(
    share: RankShare, count: int, index: int, shard: Shard, on_shards: tuple[tuple[str, ...], int]
) -> KnownSent:
    """Where to keep what copies send; `on_shards` are layers that are cut, and for how many."""
    return KnownSent({}, {})


@lru_cache(maxsize=1024)
def _known_sizes(share: RankShare, on_shards: tuple[str, ...], shards: int) -> KnownSizes:
    """Where to keep how large stages are, however many ranks hold them."""
    return {}


def _sum_for_all(elements: int, ranks: int) -> Fraction:
    """What a rank sends in a sum that is scattered and gathered again."""
    return Fraction(2 * (ranks - 1) * elements, ranks)

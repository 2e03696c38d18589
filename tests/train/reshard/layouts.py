"""Layouts that save and resume, and models that they spread."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import product
from typing import NamedTuple

import torch

from covering import Row, cover_pairs
from penstock.arch.cell_shape import CellShape, Norms
from penstock.arch.config import ModelConfig
from penstock.arch.mixture import ExpertMixture
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.plan.slices import even
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.schedules import build

MOST_RANKS = 8
MICROBATCHES = 4
"""Of all replicas."""
LENGTH = 22
FAMILIES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "seq1f1b", "seq1f1b-i")
PLAIN = ModelConfig(4, 16, 25, 4, 2, 4, 41, element_bytes=8)
"""Neither what is inside its MLP nor its vocabulary can be shared evenly by two ranks."""
MODELS = {
    "a key/value head for each of two ranks": PLAIN,
    "a key/value head that two ranks hold": replace(PLAIN, kv_heads=1, qkv_bias=True),
    "uneven heads": replace(PLAIN, heads=6, kv_heads=3, qk_norm=True),
}
MIXED = "experts"
EXPERTS = ExpertMixture(5, 2, balance=0.5)
"""Few of which no two replicas can share evenly; their auxiliary loss weighs much."""


class Spread(NamedTuple):
    """How a run is spread over its ranks."""

    family: str
    devices: int
    chunks: int
    slices: int
    tensor: int
    sequence: str
    replicas: int
    shard: str
    norms: Norms
    experts: int = 1

    @property
    def cell(self) -> CellShape:
        sizes = {} if self.sequence == "none" else {self.sequence: 2}
        return CellShape(self.tensor, norms=self.norms, experts=self.experts, **sizes)

    @property
    def ranks(self) -> int:
        return self.replicas * self.devices * self.cell.ranks

    def plan(self, model: ModelConfig) -> StepPlan:
        """What a rank is told, in float64."""
        schedule = _schedule(self.family, self.devices, self.chunks, self.slices, self.replicas)
        cuts = tuple(even(LENGTH, count) for count in schedule.shape.slices)
        layout = Layout.of(model, schedule, LENGTH, dtype=torch.float64, cell=self.cell)
        return StepPlan(layout, schedule, cuts)


ALONE = Spread("1f1b", 1, 1, 1, 1, "none", 1, "none", "scattered")


class Change(NamedTuple):
    """A run of one layout that goes on under another: first the factors of the model."""

    heads: str
    tied: bool
    saved: Spread
    resumed: Spread

    @property
    def model(self) -> ModelConfig:
        if self.heads == MIXED:
            return replace(PLAIN, ffn=10, mixture=EXPERTS)
        return replace(MODELS[self.heads], tied=self.tied)

    @property
    def row(self) -> Row:
        """All its values by the names of the factors."""
        saved = {f"saved {name}": value for name, value in self.saved._asdict().items()}
        resumed = {f"resumed {name}": value for name, value in self.resumed._asdict().items()}
        return {"heads": self.heads, "tied": self.tied, **saved, **resumed}


def _schedule(family: str, devices: int, chunks: int, slices: int, replicas: int) -> Schedule:
    microbatches = MICROBATCHES // replicas
    return build(family, devices=devices, microbatches=microbatches, chunks=chunks, slices=slices)


@cache
def all_layouts() -> tuple[Spread, ...]:
    """Every layout that exists and in which every value means something, the smallest first."""
    return tuple(sorted(_layouts(), key=lambda layout: layout.ranks))


def _layouts() -> Iterator[Spread]:
    places = product(FAMILIES, (1, 2, 4), (1, 2), (1, 2, 3), (1, 2))
    for family, devices, chunks, slices, replicas in places:
        with suppress(ShapeError):
            schedule = _schedule(family, devices, chunks, slices, replicas)
            schedule.shape.cut(PLAIN.layers)
            yield from _cells(family, devices, chunks, slices, replicas)


def _cells(family: str, devices: int, chunks: int, slices: int, replicas: int) -> Iterator[Spread]:
    norms: tuple[Norms, ...] = ("scattered", "replicated")
    shares = product((1, 2), ("none", "ulysses", "ring"), ("none", "optimizer", "full"), norms)
    for tensor, sequence, shard, norm in shares:
        made = Spread(family, devices, chunks, slices, tensor, sequence, replicas, shard, norm)
        shared = shard == "none" or made.ranks > devices * tensor
        if made.ranks <= MOST_RANKS and shared and (norm == "scattered" or tensor > 1):
            yield made


@cache
def chosen_layouts() -> tuple[Spread, ...]:
    """Layouts with every pair of values that a layout can have."""
    return tuple(cover_pairs(all_layouts(), Spread._asdict))


@cache
def chosen_changes() -> tuple[Change, ...]:
    """Changes with every pair of values of model, layout that saves and layout that resumes."""
    layouts = chosen_layouts()
    changes = [Change(*each) for each in product(MODELS, (False, True), layouts, layouts)]
    return tuple(cover_pairs(changes, lambda change: change.row))

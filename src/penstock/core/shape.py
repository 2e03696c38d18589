"""What is to be computed: how many devices, stages, microbatches and slices, and how they weigh.

A shape knows no order and no device assignment. Shares say how the work of one device and one
microbatch is divided: a stage has `1 / chunks` of it unless told otherwise, a slice `1 / slices`.
They are fractions, so that a closed form of a paper can be compared with `==`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

from penstock.errors import ShapeError

MAX_OPS = 20_000_000
"""Schedules above this many ops are refused before anything is allocated for them."""


@dataclass(frozen=True)
class Shape:
    """The size of one training step, and the few facts about the model that decide its ops."""

    devices: int
    stages: int
    slices: tuple[int, ...]
    """Slices of each microbatch; its length is the number of microbatches."""
    stage_share: tuple[Fraction, ...] = ()
    """Work of each stage in units of one device's share of one microbatch; default 1/chunks."""
    slice_share: tuple[tuple[Fraction, ...], ...] = ()
    """Work of each slice of each microbatch; default 1/slices."""
    boundary_bytes: tuple[int, ...] = ()
    """Bytes of a whole microbatch's activation between stage i and i + 1; default 0."""
    skips: tuple[tuple[int, int], ...] = ()
    """Skip edges (from stage, to stage): an output that jumps over the stages between."""
    weightless: frozenset[int] = field(default_factory=frozenset)
    """Stages without parameters: no W, and any device may run them."""
    copies: int = 1
    """Devices on which each stage's weights may live."""
    embed: str = "F"
    """Who writes the first stage's input: its own `F`, or the `E` of all vocabulary shards."""
    loss: str = "F"
    """Who writes the last stage's gradient: its own `F`, or the `S` or `T` of all shards."""

    def __post_init__(self) -> None:
        _positive("devices", self.devices)
        _positive("stages", self.stages)
        _positive("microbatches", len(self.slices))
        for count in set(self.slices):
            _positive("slices", count)
        _same_length("stage_share", self.stage_share, self.stages)
        _same_length("slice_share", self.slice_share, self.microbatches)
        _same_length("boundary_bytes", self.boundary_bytes, self.stages - 1)
        if any(len(shares) != count for shares, count in zip(self.slice_share, self.slices)):
            raise ShapeError("slice_share must have one share per slice of each microbatch")
        if self.embed not in ("F", "E") or self.loss not in ("F", "S", "T"):
            raise ShapeError(
                f"embed={self.embed} loss={self.loss} is not known",
                hint="embed is F or E; loss is F, S or T",
            )
        self._check_stage_numbers()

    def _check_stage_numbers(self) -> None:
        for stage in self.weightless:
            if not 0 <= stage < self.stages:
                raise ShapeError(f"weightless stage {stage} is not among {self.stages} stages")
        for source, target in self.skips:
            if not 0 <= source < target < self.stages:
                raise ShapeError(
                    f"skip edge {source}-{target} must lead forward inside {self.stages} stages"
                )

    @classmethod
    def even(cls, devices: int, microbatches: int, chunks: int = 1, slices: int = 1) -> "Shape":
        """`chunks` equal stages per device and `slices` equal slices per microbatch."""
        for name, count in (
            ("devices", devices),
            ("microbatches", microbatches),
            ("chunks", chunks),
            ("slices", slices),
        ):
            _positive(name, count)
        ops = 2 * devices * chunks * microbatches * slices
        if ops > MAX_OPS:
            raise ShapeError(
                f"{devices} devices x {chunks} chunks x {microbatches} microbatches x {slices} "
                f"slices need {ops:,} ops, above the limit of {MAX_OPS:,}",
                hint="lower the number of microbatches or slices",
            )
        return cls(devices, devices * chunks, (slices,) * microbatches)

    @property
    def microbatches(self) -> int:
        return len(self.slices)

    @cached_property
    def units(self) -> int:
        """Schedulable pieces of the batch: all slices of all microbatches."""
        return sum(self.slices)

    @cached_property
    def first_unit(self) -> tuple[int, ...]:
        """Number of the first unit of each microbatch, and the total at the end."""
        return (0, *accumulate(self.slices))

    @property
    def chunks(self) -> Fraction:
        """Stages per device; a fraction where stages do not divide evenly."""
        return Fraction(self.stages, self.devices)

    def share_of_stage(self, stage: int) -> Fraction:
        return self.stage_share[stage] if self.stage_share else 1 / self.chunks

    def share_of_slice(self, mb: int, slice: int) -> Fraction:
        return self.slice_share[mb][slice] if self.slice_share else Fraction(1, self.slices[mb])


def _positive(name: str, count: int) -> None:
    if not isinstance(count, int) or count < 1:
        raise ShapeError(
            f"{name} is {count}, but must be a whole number of at least 1",
            hint=f"give {name} a value of 1 or more",
        )


def _same_length(name: str, values: Sequence[object], wanted: int) -> None:
    if values and len(values) != wanted:
        raise ShapeError(f"{name} has {len(values)} entries, but the shape needs {wanted}")

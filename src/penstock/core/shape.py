"""What is to be computed: how many devices, stages, microbatches and slices, and how they weigh.

A shape knows no order and no device assignment. Shares say how the work of one device and one
microbatch is divided: a stage has `1 / chunks` of it unless told otherwise, a slice `1 / slices`.
They are fractions, so that a closed form of a paper can be compared with `==`.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate

from penstock.errors import ShapeError, shown

MAX_OPS = 20_000_000
"""Schedules above this many ops are refused before anything is allocated for them."""
MAX_DEVICES = 4_096
"""Deepest pipeline; some tables have a place for every pair of devices."""

TO_ATTENTION = ("heads", "weights")
"""What stages of attention alone may be given: queries, keys and values, or the normed input and
the weights that make them of it."""

WEIGHED = ("F", "I", "W", "act", "stash")
"""Kinds of op and sizes of buffers in which a stage may have a share of its own."""


@dataclass(frozen=True)
class Shape:
    """The size of one training step, and the few facts about the model that decide its ops."""

    devices: int
    stages: int
    slices: tuple[int, ...]
    """Slices of each microbatch; its length is the number of microbatches."""
    stage_share: tuple[Fraction, ...] = ()
    """Work of each stage in units of one device's share of one microbatch; default 1/chunks."""
    kind_share: tuple[tuple[str, tuple[Fraction, ...]], ...] = ()
    """Kinds of op (F, I, W) and sizes of buffers (act, stash) in which stages do not weigh what
    `stage_share` says, with their own share of each stage: a head may compute much and keep
    little. N and R weigh what F does, B is an I and a W."""
    slice_share: tuple[tuple[Fraction, ...], ...] = ()
    """Work of each slice of each microbatch; default 1/slices."""
    boundary_bytes: tuple[int, ...] = ()
    """Bytes of a whole microbatch's activation between stage i and i + 1; default 0."""
    skips: tuple[tuple[int, int], ...] = ()
    """Skip edges (from stage, to stage): an output that jumps over the stages between."""
    ties: tuple[tuple[int, int], ...] = ()
    """Stages that share a weight, as the embedding and the output layer of many models do: each
    has a copy, and both are updated by the sum of their gradients."""
    weightless: frozenset[int] = field(default_factory=frozenset)
    """Stages without parameters: no W, and any device may run them."""
    copies: int = 1
    """Devices on which each stage's weights may live."""
    embed: str = "F"
    """Who writes the first stage's input: its own `F`, or the `E` of all vocabulary shards."""
    loss: str = "F"
    """Who writes the last stage's gradient: its own `F`, or the `S` or `T` of all shards."""
    to_attention: str = "heads"
    """What stages without weights are given, where they are attention (`TO_ATTENTION`)."""
    layers: tuple[int, ...] = field(default=(), repr=False)
    """Layers of each stage, embedding and output layer not counted, where the order was made for
    one cut of the model; empty where stages are to be as equal as can be."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # once: shares are many fractions; text differs between processes
        return hash((self.devices, self.stages, self.slices, self.slice_share[:1]))

    def __post_init__(self) -> None:
        _positive("devices", self.devices)
        _positive("stages", self.stages)
        _positive("microbatches", len(self.slices))
        _positive("copies", self.copies)
        for count in set(self.slices):
            _positive("slices", count)
        if self.devices > self.stages:
            raise ShapeError(
                f"{self.devices} devices cannot share {self.stages} stage(s)",
                hint="give every device at least one stage",
            )
        _limited(self.devices, self.stages, sum(self.slices))
        self._check_lengths()
        self._check_stage_numbers()
        ends = self.embed in ("F", "E") and self.loss in ("F", "S", "T")
        if not ends or self.to_attention not in TO_ATTENTION:
            raise ShapeError(
                f"to_attention={shown(self.to_attention)} embed={shown(self.embed)} "
                f"loss={shown(self.loss)} is not known",
                hint="embed is F or E; loss is F, S or T; to_attention is heads or weights",
            )

    def _check_lengths(self) -> None:
        _same_length("stage_share", self.stage_share, self.stages)
        self._check_kinds()
        _same_length("slice_share", self.slice_share, self.microbatches)
        _same_length("boundary_bytes", self.boundary_bytes, self.stages - 1)
        _same_length("layers", self.layers, self.stages)
        by_kind, every = [shares for _, shares in self.kind_share], [*self.stage_share]
        of_slices = {id(shares): shares for shares in self.slice_share}  # often one for all
        every += [share for shares in (*of_slices.values(), *by_kind) for share in shares]
        counts = (*self.boundary_bytes, *self.layers)
        if min(every, default=0) < 0 or min(counts, default=0) < 0:
            raise ShapeError(
                "a share, the bytes of a boundary or the layers of a stage are negative",
                hint="give 0 or more",
            )
        for mb, (shares, count) in enumerate(zip(self.slice_share, self.slices)):
            if len(shares) != count:
                raise ShapeError(
                    f"slice_share has {len(shares)} shares for microbatch {mb}, which has {count} "
                    "slice(s)",
                    hint="give every slice of every microbatch one share",
                )

    def _check_kinds(self) -> None:
        names = [name for name, _ in self.kind_share]
        for name, shares in self.kind_share:
            if name not in WEIGHED or names.count(name) > 1:
                raise ShapeError(
                    f"kind_share has {shown(name)}, which is not known or named twice",
                    hint=f"give each of {', '.join(WEIGHED)} at most once",
                )
            if len(shares) != self.stages:
                raise ShapeError(
                    f"kind_share {name} has {len(shares)} entries for {self.stages} stages",
                    hint="give every stage one share",
                )

    def _check_stage_numbers(self) -> None:
        _different("skip edge", self.skips)
        _different("tie", self.ties)
        for stage in self.weightless:
            if not 0 <= stage < self.stages:
                raise ShapeError(
                    f"weightless stage {stage} is not among the {self.stages} stages",
                    hint=f"stages are numbered 0 to {self.stages - 1}",
                )
        for source, target in self.skips:
            if not 0 <= source < target < self.stages:
                raise ShapeError(
                    f"skip edge {source}-{target} does not lead forward in {self.stages} stages",
                    hint="a skip edge leads from a stage to a later one",
                )
        for first, second in self.ties:
            if not 0 <= first <= second < self.homes:
                raise ShapeError(
                    f"tie {first}-{second} does not join two of the {self.stages} stages",
                    hint="a tie joins a stage and a later one, or itself",
                )

    @classmethod
    def even(cls, devices: int, microbatches: int, chunks: int = 1, slices: int = 1) -> "Shape":
        """`chunks` equal stages per device and `slices` equal slices per microbatch."""
        sizes = (devices, microbatches, chunks, slices)
        for name, count in zip(("devices", "microbatches", "chunks", "slices"), sizes):
            _positive(name, count)
        _limited(devices, devices * chunks, microbatches * slices)
        return _even(*sizes)

    @property
    def microbatches(self) -> int:
        return len(self.slices)

    @property
    def shards(self) -> int:
        """Vocabulary shards, one of each device; 0 where the first and the last stage have the
        vocabulary layers."""
        return self.devices if self.embed == "E" or self.loss != "F" else 0

    @property
    def homes(self) -> int:
        """How many things have weights: stages, and then vocabulary shards, which are numbered on
        where their weights are meant."""
        return self.stages + self.shards

    @cached_property
    def units(self) -> int:
        """Schedulable pieces of the batch: all slices of all microbatches."""
        return sum(self.slices)

    @cached_property
    def first_unit(self) -> tuple[int, ...]:
        """Number of the first unit of each microbatch, and the total at the end."""
        return (0, *accumulate(self.slices))

    def unit_of(self, mb: int, slice: int) -> int:
        """Number of a unit, counted along the batch."""
        return self.first_unit[mb] + slice

    def mb_and_slice(self, unit: int) -> tuple[int, int]:
        """Microbatch and slice of a unit.

        >>> [Shape(1, 1, (1, 2)).mb_and_slice(unit) for unit in range(3)]
        [(0, 0), (1, 0), (1, 1)]
        """
        mb = bisect_right(self.first_unit, unit) - 1
        return mb, unit - self.first_unit[mb]

    @property
    def chunks(self) -> Fraction:
        """Stages per device; a fraction where stages do not divide evenly."""
        return Fraction(self.stages, self.devices)

    def share_of_stage(self, stage: int) -> Fraction:
        return self.stage_share[stage] if self.stage_share else Fraction(self.devices, self.stages)

    def cut(self, layers: int) -> tuple[int, ...]:
        """Layers of each stage for a model that has so many; empty is as even as can be.

        Where all layers weigh the same, a cut says the same of any number of them.

        >>> Shape(2, 2, (1,), (Fraction(3, 2), Fraction(1, 2)), layers=(9, 3)).cut(4)
        (3, 1)
        """
        made = self.layers or self._attentions
        whole, even = sum(made), len({*made}) <= 1
        if even or whole == layers:
            return made if whole == layers else ()
        scaled = [Fraction(count * layers, whole) for count in made]
        if not self._has_equal_layers or any(count.denominator > 1 for count in scaled):
            raise ShapeError(
                f"the schedule is made for stages of {', '.join(map(str, made))} layers, "
                f"{whole} together, which does not fit a model of {layers} layers",
                hint=f"make a schedule for {layers} layers, or give the layers of each stage",
            )
        return tuple(map(int, scaled))

    @property
    def _attentions(self) -> tuple[int, ...]:
        """Where layers are cut at their attention, each counts where that is; empty elsewhere."""
        counts = tuple(int(stage in self.weightless) for stage in range(self.stages))
        return counts if self.weightless else ()

    @property
    def _has_equal_layers(self) -> bool:
        """Whether every stage weighs what the number of its layers says."""
        shares = {(self.share_of_stage(s), count) for s, count in enumerate(self.layers) if count}
        equal = len({share / count for share, count in shares}) == 1
        idle = [self.share_of_stage(s) for s, count in enumerate(self.layers) if not count]
        return equal and not any(idle) and not self.kind_share

    def share_in(self, name: str, stage: int) -> Fraction:
        """What a stage weighs in one kind of op or size of buffer."""
        for own, shares in self.kind_share:
            if own == name:
                return shares[stage]
        return self.share_of_stage(stage)

    def share_of_slice(self, mb: int, slice: int) -> Fraction:
        return self.slice_share[mb][slice] if self.slice_share else Fraction(1, self.slices[mb])


@lru_cache(maxsize=256)
def _even(devices: int, microbatches: int, chunks: int, slices: int) -> Shape:
    """Many records are asked for the same sizes, one after the other."""
    return Shape(devices, devices * chunks, (slices,) * microbatches)


def _positive(name: str, count: int) -> None:
    if type(count) is not int or count < 1:
        message = f"{name} is {count!r}, but must be an integer of at least 1"
        raise ShapeError(message, hint=f"give {name} a value of 1 or more")


def _limited(devices: int, stages: int, units: int) -> None:
    """Refuse what could never be held, before anything of that size is made."""
    if devices > MAX_DEVICES:
        raise ShapeError(
            f"a pipeline of {devices:,} devices is deeper than {MAX_DEVICES:,}",
            hint="lower the number of devices; more of them can run copies of the pipeline",
        )
    if 2 * stages * units > MAX_OPS:
        raise ShapeError(
            f"{stages:,} stages x {units:,} units (microbatches x slices) need at least "
            f"{2 * stages * units:,} ops, above the limit of {MAX_OPS:,}",
            hint="lower the number of microbatches or slices",
        )


def _different(what: str, pairs: Sequence[tuple[int, int]]) -> None:
    """Two edges between the same stages would carry the same thing, and only one be sent."""
    for (first, second), count in Counter(pairs).items():
        if count > 1:
            raise ShapeError(
                f"the {what} {first}-{second} is given {count} times", hint="give it once"
            )


def _same_length(name: str, values: Sequence[object], wanted: int) -> None:
    if values and len(values) != wanted:
        raise ShapeError(
            f"{name} has {len(values)} entries, but the shape needs {wanted}",
            hint=f"give {name} {wanted} entries, or none for the default",
        )

"""A schedule: lanes of ops, in order, without time and without sends.

Four annotations say what lane order cannot: `pairs` run braided, `loans` move attention work to a
device with less of it, `gangs` are done by several devices together, and `after` holds an op back
until another has ended. `shares` says how much of an activation an offload moves.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from penstock.core.ops import STREAMS, Op
from penstock.core.shape import Shape
from penstock.core.table import Ints, PlainLane, Table
from penstock.display import Displayed
from penstock.errors import ShapeError

Derived = TypeVar("Derived")
ORDER_ALONE = (
    *("report", "graph", "moves", "groups", "alike rows", "runs of groups"),
    *("crossings", "crossed links", "transfer links", "joined edges", "edges without data"),
    *("collectives of edges", "weight homes", "ends by home", "ends by home, away too"),
    *("home column", "rows of pairs", "rows of loans", "rows of after", "rows of collected parts"),
    *("collectives", "unit ends", "slots for running"),
)
"""What is derived from the order of ops, whatever they weigh: the proof, who waits for whom, what
moves between devices, what runs together, which ops are of one sort, where weights live."""

ANNOTATIONS_ALONE = ("pairs as columns", "loans as columns")
"""What is derived from annotations, wherever the ops stand that they name."""


class Loan(NamedTuple):
    """`light` attends to `slices` key/value slices for `heavy`; the two run in lock-step."""

    heavy: Op
    light: Op
    slices: int


class After(NamedTuple):
    """`op` starts no earlier than `earlier` ends, on whatever lanes they stand."""

    op: Op
    earlier: Op


Lanes = Sequence[Sequence[Any]]
"""What a generator returns: the compute lane of each device. An item is an op (kind, stage, mb,
slice), or a tuple of ops to be run as one braided pair."""


@dataclass(frozen=True)
class Draft:
    """What a generator returns when compute lanes alone do not say it all."""

    compute: Lanes
    copy: Lanes = ()
    collective: Lanes = ()
    loans: tuple[Loan, ...] = ()
    gangs: tuple[Op, ...] = ()
    after: Sequence[After] = ()
    shares: tuple[tuple[Op, Fraction], ...] = ()


@dataclass(frozen=True, eq=False)
class Schedule(Displayed):
    """Who does what in which order. Proven by `check`, priced by `simulate`, run by the runtime."""

    name: str
    shape: Shape
    table: Table
    pairs: tuple[tuple[Op, ...], ...] = ()
    loans: tuple[Loan, ...] = ()
    gangs: tuple[Op, ...] = ()
    after: Sequence[After] = ()
    shares: tuple[tuple[Op, Fraction], ...] = ()
    derived: dict[str, Any] = field(default_factory=dict, repr=False)
    """What has been derived from this schedule (its graph, its proof), kept to be derived once."""

    @classmethod
    def of(cls, name: str, shape: Shape, lanes: Lanes | Draft) -> "Schedule":
        """The schedule of a generator's lanes."""
        draft = lanes if isinstance(lanes, Draft) else Draft(lanes)
        compute, pairs = _unpair(draft.compute)
        streams = (("compute", compute), ("copy", draft.copy), ("collective", draft.collective))
        rows = [
            (device, stream, ops)
            for stream, of_device in streams
            for device, ops in enumerate(of_device)
        ]
        return cls.from_lanes(
            name,
            shape,
            rows,
            pairs=pairs,
            loans=draft.loans,
            gangs=draft.gangs,
            after=draft.after,
            shares=draft.shares,
        )

    @classmethod
    def from_lanes(
        cls, name: str, shape: Shape, lanes: Iterable[PlainLane], **annotations: Any
    ) -> "Schedule":
        """The schedule of lanes given as (device, stream, ops)."""
        rows = list(lanes)
        seen: set[tuple[int, str]] = set()
        for device, stream, _ in rows:
            if not 0 <= device < shape.devices or stream not in STREAMS:
                raise ShapeError(
                    f"lane {device} {stream} does not exist",
                    hint=f"devices are 0 to {shape.devices - 1}, streams {', '.join(STREAMS)}",
                )
            if (device, stream) in seen:
                raise ShapeError(
                    f"lane {device} {stream} is given twice", hint="put its ops into one lane"
                )
            seen.add((device, stream))
        if not any(len(ops) for _, _, ops in rows):
            raise ShapeError("a schedule needs at least one op", hint="give a lane some ops")
        return cls(name, shape, Table.of(rows), **annotations)

    def __repr__(self) -> str:
        return f"<Schedule {self.summary}>"

    @property
    def summary(self) -> str:
        """Name and sizes, as the `repr` of whatever is made of this schedule says them."""
        shape = self.shape
        return (
            f"{self.name!r}: {shape.devices} devices, {shape.stages} stages, "
            f"{shape.microbatches} microbatches, {len(self.table):,} ops"
        )

    def lane(self, device: int, stream: str = "compute") -> list[Op]:
        """The ops of one lane, in order; empty where the device has no such lane."""
        table = self.table
        for lane, (at, name) in enumerate(zip(table.lane_device.tolist(), table.lane_stream)):
            if (at, name) == (device, stream):
                return table.ops(*table.lane_start[lane : lane + 2].tolist())
        return []

    def derive(self, name: str, build: Callable[["Schedule"], Derived]) -> Derived:
        """What `build` makes of this schedule, made once and kept under `name`."""
        if name not in self.derived:
            self.derived[name] = build(self)
        kept: Derived = self.derived[name]
        return kept

    def with_slice_shares(self, shares: tuple[tuple[Fraction, ...], ...]) -> "Schedule":
        """The same order of slices that weigh otherwise, with what follows from order alone."""
        kept = {name: self.derived[name] for name in ORDER_ALONE if name in self.derived}
        return replace(self, shape=replace(self.shape, slice_share=shares), derived=kept)

    def with_table(self, table: Table, **changes: Any) -> "Schedule":
        """The same pairs in other lanes, with what follows from annotations alone."""
        kept = {name: self.derived[name] for name in ANNOTATIONS_ALONE if name in self.derived}
        return replace(self, table=table, derived=kept, **changes)

    def with_boundary_bytes(self, sizes: tuple[int, ...]) -> "Schedule":
        """The same order with other boundaries between stages."""
        kept = {name: self.derived[name] for name in ORDER_ALONE if name in self.derived}
        return replace(self, shape=replace(self.shape, boundary_bytes=sizes), derived=kept)

    @cached_property
    def unit(self) -> Ints:
        """Unit (slice of a microbatch, numbered through) of each row; -1 where there is none."""
        return self.table.units(self.shape)

    def renamed(self, name: str) -> "Schedule":
        return replace(self, name=name, derived={})

    @cached_property
    def digest(self) -> str:
        """A hash of everything but the name: equal for equal work in equal order."""
        table = self.table
        parts = (table.kind, table.stage, table.mb, table.slice, table.lane_start)
        content = hashlib.sha256(b"".join(part.tobytes() for part in parts))
        content.update(table.lane_device.tobytes())
        annotations = (self.pairs, self.loans, self.gangs, self.after, self.shares)
        weightless = sorted(self.shape.weightless)
        content.update(repr((table.lane_stream, annotations, weightless)).encode())
        content.update(repr(replace(self.shape, weightless=frozenset())).encode())
        if self.shape.layers:  # named apart: most schedules have none, and keep their hash
            content.update(repr(self.shape.layers).encode())
        return content.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def _unpair(lanes: Lanes) -> tuple[list[list[Any]], tuple[tuple[Op, ...], ...]]:
    """Lanes with their nested pairs laid flat, and the pairs."""
    pairs: list[tuple[Op, ...]] = []
    flat: list[list[Any]] = []
    for lane in lanes:
        first_parts = set(map(type, map(itemgetter(0), lane)))
        if first_parts <= {str}:
            flat.append(list(lane))
            continue
        ops: list[Any] = []
        for item in lane:
            strands = item if isinstance(item[0], tuple) else (item,)
            ops += strands
            if len(strands) > 1:
                pairs.append(tuple(Op(*strand) for strand in strands))
        flat.append(ops)
    return flat, tuple(pairs)

"""One columnar table behind the readable objects of a schedule.

Lanes of op objects are pleasant to read and slow to work on: a step of 64 devices has millions of
ops. The table holds the same ops as numpy columns, one row each, lane after lane, so that checks,
graphs and simulations are loops over arrays. A row number is the identity of an op everywhere
behind the generators.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.ops import KINDS, STAGE_KINDS, STREAMS, Op
from penstock.core.shape import Shape
from penstock.errors import ShapeError

Ints = NDArray[np.int32]
Ticks = NDArray[np.int64]
"""Times or amounts, as whole numbers of a common unit."""
PlainLane = tuple[int, str, Sequence[tuple[str, int, int, int]]]
"""Device, stream, ops: what a table is built from. An op is any (kind, stage, mb, slice)."""

LETTERS = tuple(KINDS)
CODE = {letter: number for number, letter in enumerate(LETTERS)}
_OP_OF: Callable[[tuple[str, int, int, int]], Op] = partial(tuple.__new__, Op)
"""An op of its four parts, without a call of Python: whole lanes are made of them."""
_NO_CODE = 255
_CODE_OF_BYTE = np.full(256, _NO_CODE, np.uint8)
_CODE_OF_BYTE[[ord(letter) for letter in LETTERS]] = range(len(LETTERS))
_STAGE_CODES = np.isin(np.arange(256), [CODE[kind] for kind in STAGE_KINDS])
"""Whether a code serves a whole stage; these are the highest codes."""


class OpColumns(NamedTuple):
    """Some ops, as columns."""

    kind: NDArray[Any]
    stage: NDArray[Any]
    mb: NDArray[Any]
    slice: NDArray[Any]

    def at(self, rows: NDArray[Any]) -> "OpColumns":
        """Those at some places."""
        return OpColumns(*(column[rows] for column in self))

    def ops(self) -> list[Op]:
        """The same as objects."""
        letters = [LETTERS[code] for code in self.kind.tolist()]
        return list(map(_OP_OF, zip(letters, *(column.tolist() for column in self[1:]))))

    def followed_by(self, behind: "OpColumns") -> "OpColumns":
        """These and others."""
        return OpColumns(*(np.concatenate(parts) for parts in zip(self, behind)))


def known_columns(ops: Sequence[Op]) -> OpColumns:
    """The columns of some ops; what is of no kind is in no lane."""
    letters, *places = zip(*ops) if ops else ((), (), (), ())
    codes = np.array([*map(CODE.get, letters, repeat(_NO_CODE))], np.uint8)
    return OpColumns(codes, *(np.fromiter(numbers, np.int64, len(ops)) for numbers in places))


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of a schedule's ops; `lane_start[i] : lane_start[i + 1]` are the rows of lane i."""

    kind: NDArray[np.uint8]
    stage: Ints
    mb: Ints
    slice: Ints
    lane_start: Ints
    lane_device: Ints
    lane_stream: tuple[str, ...]

    @classmethod
    def of(cls, lanes: Iterable[PlainLane]) -> "Table":
        """The table of some lanes, ordered by device and stream; empty lanes are dropped."""
        rows = sorted(
            ((device, STREAMS.index(stream), ops) for device, stream, ops in lanes if len(ops)),
            key=lambda lane: lane[:2],
        )
        kind, stage, mb, slice = _columns([*chain(*(ops for _, _, ops in rows))])
        return cls(
            kind=kind,
            stage=stage,
            mb=mb,
            slice=slice,
            lane_start=np.cumsum([0, *(len(ops) for _, _, ops in rows)], dtype=np.int32),
            lane_device=np.array([device for device, _, _ in rows], np.int32),
            lane_stream=tuple(STREAMS[stream] for _, stream, _ in rows),
        )

    def appended(self, lanes: Iterable[PlainLane]) -> "Table":
        """The table with more ops at the ends of some lanes, which may be new ones."""
        return self.followed_by(Table.of(lanes))

    def followed_by(self, behind: "Table") -> "Table":
        """The same, with ops that are a table already."""
        columns, tables = self.columns.followed_by(behind.columns), (self, behind)
        device = np.concatenate([table.device for table in tables])
        stream = np.concatenate([table.stream for table in tables])
        return Table.of_columns(columns, device, stream)

    @classmethod
    def of_columns(cls, ops: OpColumns, device: Ints, stream: Ints) -> "Table":
        """The table of ops of these devices and streams (numbers in `STREAMS`); those of one lane
        in the order given."""
        key = device * len(STREAMS) + stream
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        lanes = key[first]
        kind, stage, mb, slice = (column[order] for column in ops)
        return cls(
            kind,
            stage,
            mb,
            slice,
            np.append(first, len(key)).astype(np.int32),
            lanes // len(STREAMS),
            tuple(STREAMS[lane] for lane in (lanes % len(STREAMS)).tolist()),
        )

    @property
    def columns(self) -> OpColumns:
        """The ops of all rows."""
        return OpColumns(self.kind, self.stage, self.mb, self.slice)

    def __len__(self) -> int:
        return len(self.kind)

    def __repr__(self) -> str:
        return f"<Table of {len(self):,} ops in {len(self.lane_stream)} lanes>"

    @cached_property
    def lane(self) -> Ints:
        """Lane number of each row."""
        lengths = np.diff(self.lane_start)
        return np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)

    @cached_property
    def device(self) -> Ints:
        """Device of each row."""
        return self.lane_device[self.lane]

    @cached_property
    def stream(self) -> Ints:
        """Number of the stream of each row."""
        return np.array([*map(STREAMS.index, self.lane_stream)], np.int32)[self.lane]

    @cached_property
    def lane_stage(self) -> Ints:
        """The stage of each lane whose ops are all of one stage, -1 for the others."""
        first = self.lane_start[:-1]
        lowest = np.minimum.reduceat(self.stage, first)
        return np.where(lowest == np.maximum.reduceat(self.stage, first), lowest, np.int32(-1))

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Kinds that occur."""
        seen = np.zeros(256, np.bool_)
        seen[self.kind] = True
        return frozenset(LETTERS[code] for code in np.flatnonzero(seen))

    def of_kinds(self, kinds: Collection[str]) -> NDArray[np.bool_]:
        """Which rows are of one of some kinds."""
        wanted = np.zeros(256, np.bool_)
        wanted[[CODE[kind] for kind in kinds]] = True
        return wanted[self.kind]

    def lanes_of(self, stream: str) -> NDArray[np.int64]:
        """Numbers of the lanes of a stream."""
        found = [lane for lane, name in enumerate(self.lane_stream) if name == stream]
        return np.array(found, np.int64)

    def position(self, row: int) -> int:
        """Place of a row in its lane, from 0."""
        return int(row - self.lane_start[self.lane[row]])

    def units(self, shape: Shape) -> Ints:
        """Unit (slice of a microbatch, numbered through) of each row; -1 where the shape has none.

        Ops of a whole stage (gathers, updates) have no unit.
        """
        last, counts = shape.microbatches - 1, np.array(shape.slices, np.int32)
        even = counts.min() == counts.max()
        if even and self.mb.max() <= last and self.slice.max() < counts[0]:
            unit: Ints = self.mb * counts[0] + self.slice
            bad = _STAGE_CODES[self.kind] if _STAGE_CODES[self.kind.max()] else None
        else:
            mb = np.minimum(self.mb, last)
            unit = np.array(shape.first_unit, np.int32)[mb] + self.slice
            bad = (self.mb > last) | (self.slice >= counts[mb]) | _STAGE_CODES[self.kind]
        if bad is not None:
            unit[bad] = -1
        return unit

    def op(self, row: int) -> Op:
        """The op at a row."""
        return Op(
            LETTERS[self.kind[row]], int(self.stage[row]), int(self.mb[row]), int(self.slice[row])
        )

    def ops(self, start: int = 0, end: int | None = None) -> list[Op]:
        """The ops of a range of rows."""
        return self.ops_at(range(start, len(self) if end is None else end))

    def ops_at(self, rows: Sequence[int] | NDArray[Any]) -> list[Op]:
        """The ops of some rows."""
        return self.columns_at(np.asarray(rows, np.int64)).ops()

    def columns_at(self, rows: NDArray[Any]) -> OpColumns:
        """The same as columns."""
        return self.columns.at(rows)

    def lanes(self) -> Iterator[tuple[int, str, list[Op]]]:
        """Device, stream and ops of each lane."""
        for lane, (device, stream) in enumerate(zip(self.lane_device, self.lane_stream)):
            yield int(device), stream, self.ops(self.lane_start[lane], self.lane_start[lane + 1])

    @cached_property
    def rows_by_op(self) -> dict[Op, list[int]]:
        """Every row of every op; more than one for a gang, or for a mistake."""
        ops = self.ops()
        rows = {op: [row] for row, op in enumerate(ops)}
        if len(rows) < len(ops):
            rows = {op: [] for op in rows}
            for row, op in enumerate(ops):
                rows[op].append(row)
        return rows

    @cached_property
    def _by_number(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of all ops in their order, and the row of each."""
        numbers = self._numbers(self.columns)
        order = np.argsort(numbers, kind="stable")
        return numbers[order], order

    def _numbers(self, columns: OpColumns) -> NDArray[np.int64]:
        """A number for each op, other than those of all different ops of the table; -1 for an op
        that is beyond all of them."""
        kind, *places = columns
        found, there = kind.astype(np.int64), np.ones(len(kind), np.bool_)
        for place, column in zip(places, self.columns[1:]):
            room = int(column.max()) + 1
            there &= (place >= 0) & (place < room)
            found = found * room + place
        return np.where(there, found, -1)

    @cached_property
    def repeats(self) -> bool:
        """Whether some op has several rows: a gang, or a mistake."""
        numbers = self._by_number[0]
        return bool((numbers[1:] == numbers[:-1]).any())

    def first_rows(self, ops: Sequence[Op]) -> NDArray[np.int64]:
        """The first row of each of some ops, -1 for one that is in no lane."""
        return self.first_rows_of(known_columns(ops))

    def first_rows_of(self, columns: OpColumns) -> NDArray[np.int64]:
        """The same of ops that are columns."""
        wanted, (numbers, rows) = self._numbers(columns), self._by_number
        at = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
        return np.where(numbers[at] == wanted, rows[at], -1)

    def row_of(self, op: Op) -> int:
        """First row that holds `op`, or -1."""
        code = CODE.get(op.kind, 255)
        match = (self.kind == code) & (self.stage == op.stage)
        match &= (self.mb == op.mb) & (self.slice == op.slice)
        return int(match.argmax()) if match.any() else -1

    def same(self, other: "Table") -> bool:
        """Whether two tables hold the same ops in the same lanes."""
        return self.lane_stream == other.lane_stream and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("kind", "stage", "mb", "slice", "lane_start", "lane_device")
        )


def _columns(ops: Sequence[tuple[str, int, int, int]]) -> tuple[NDArray[Any], ...]:
    letters, *columns = zip(*ops) if {*map(len, ops)} == {4} else ((None,),)
    if {*map(type, letters)} != {str}:
        odd = next(op for op in ops if len(op) != 4 or type(op[0]) is not str)
        raise ShapeError(
            f"{odd!r} is not an op", hint="an op is a tuple (kind, stage, microbatch, slice)"
        )
    kinds = "".join(letters)
    codes = _CODE_OF_BYTE[np.frombuffer(kinds.encode("latin-1", "replace"), np.uint8)]
    if len(codes) != len(ops) or 255 in codes:
        unknown = next(op[0] for op in ops if op[0] not in CODE)
        raise ShapeError(f"{unknown!r} is not a kind of op", hint=f"kinds are {' '.join(LETTERS)}")
    return codes, *(np.fromiter(numbers, np.int32, len(ops)) for numbers in columns)

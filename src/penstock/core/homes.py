"""Where weights live, and the order of the ops that serve a whole stage.

The lane an op stands in decides its device, so the home of a stage's weights is derived: every
device that runs an op which reads or writes them. A vocabulary shard lives on the device of its
number; its weights are numbered behind those of all stages.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.buffers import BUFFERS
from penstock.core.gangs import helping_rows
from penstock.core.kernel import kernel
from penstock.core.meaning import MEANING, kinds_reading, kinds_writing, rules
from penstock.core.ops import SHARD_KINDS, STAGE_KINDS
from penstock.core.rules import NAMES, NUMBER_OF
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.core.table import CODE, LETTERS, Ints

_TOUCHING = frozenset(
    kind for name in ("weight", "dw") for kind in kinds_reading(name) | kinds_writing(name)
)
"""Kinds that read or write weights or their gradients."""
_TOUCHING_CODES = [CODE[kind] for kind in sorted(_TOUCHING)]


def weight_homes(schedule: Schedule) -> dict[int, list[int]]:
    """Devices on which each stage's weights are read or written; weightless stages have none.

    Members of a gang away from home help without them.
    """
    found = schedule.derive("weight homes", _weight_homes)
    return {stage: [*devices] for stage, devices in found.items()}


def _weight_homes(schedule: Schedule) -> dict[int, list[int]]:
    ends = _ends_by_home(schedule, away=False)
    there = (ends.last[_TOUCHING_CODES].max(axis=0) >= 0) & (ends.stage < schedule.shape.stages)
    homes: dict[int, list[int]] = {}
    for stage, device in zip(ends.stage[there].tolist(), ends.device[there].tolist()):
        if stage not in schedule.shape.weightless:
            homes.setdefault(stage, []).append(device)
    return homes


def shard_homes(shape: Shape) -> dict[int, list[int]]:
    """The device of each vocabulary shard, by the number that its weights have."""
    return {shape.stages + device: [device] for device in range(shape.shards)}


def home_column(schedule: Schedule) -> Ints:
    """For every row the number of the stage or shard whose weights it is about; kept with it."""
    return schedule.derive("home column", _home_column)


def _home_column(schedule: Schedule) -> Ints:
    table = schedule.table
    if not table.kinds & SHARD_KINDS:
        return table.stage
    behind = schedule.shape.stages * table.of_kinds(SHARD_KINDS)
    numbers: Ints = (table.stage + behind).astype(np.int32)
    return numbers


def stage_column(schedule: Schedule) -> Ints:
    """For every row a stage: ops of a shard's weights, which do nothing to a batch, stand with the
    last one."""
    return np.minimum(schedule.table.stage, schedule.shape.stages - 1)


class HomeEnds(NamedTuple):
    """The first and the last row of each kind, by the stages or shards and devices that the ops of
    a schedule stand for."""

    stage: Ints
    """Number of each stage or shard."""
    device: Ints
    first: Ints
    """By code of the kind, and stage and device."""
    last: Ints
    """The same; -1 where there is none."""

    def of(self, kinds: Iterable[str]) -> tuple[Ints, Ints]:
        """First and last rows of some kinds together; the last one is -1 where there is none."""
        codes = [CODE[kind] for kind in kinds]
        if len(codes) == 1:
            return self.first[codes[0]], self.last[codes[0]]
        return self.first[codes].min(axis=0), self.last[codes].max(axis=0)


class _Reader(NamedTuple):
    """A kind that reads a home buffer."""

    kind: str
    newer: str
    """The buffer that it reads instead where that is written; empty where there is none."""


def _readers(name: str) -> Iterator[_Reader]:
    """Who reads a home buffer, as itself or as the next generation of another."""
    for kind, entry in MEANING.items():
        for ref in entry.reads:
            newer = BUFFERS[ref.buffer].newer if ref.generation == "newest" else ""
            if name in (ref.buffer, newer):
                assert not ref.stage, "weights are those of the op's own stage"
                yield _Reader(kind, newer if name == ref.buffer else "")


_READERS = {name: [*_readers(name)] for name, buffer in BUFFERS.items() if buffer.per == "home"}
"""Who reads each home buffer."""


_LINES = np.array(
    [
        (NUMBER_OF[name], CODE[reader.kind], NUMBER_OF.get(reader.newer, -1), turn == "last")
        for name, turn in ((name, BUFFERS[name].turn) for name in _READERS)
        for reader in _READERS[name]
        if not BUFFERS[name].collective
    ],
    np.int32,
)
"""Who reads what from one writer: buffer, kind, the number of the newer buffer or -1, and whether
it is the last one that waits for the last one."""
_WRITING = np.array([[kind in kinds_writing(name) for kind in LETTERS] for name in NAMES])
"""By buffer and kind, who writes what."""


def home_edges(schedule: Schedule) -> NDArray[np.int32]:
    """Edges (reader row, writer row, buffer) that gathers, reductions and updates bring along."""
    kinds = schedule.table.kinds
    if not kinds & STAGE_KINDS:
        return np.zeros((0, 3), np.int32)
    away, at_home = (_ends_by_home(schedule, away=away) for away in (True, False))
    there = np.array([kind in kinds for kind in LETTERS])
    written = np.array([not kinds_writing(name).isdisjoint(kinds) for name in NAMES])
    lines = _LINES[there[_LINES[:, 1]] & written[_LINES[:, 0]]]
    found = np.empty((len(lines) * len(away.stage), 3), np.int32)
    rows = (away.first, away.last, at_home.first, at_home.last)
    size = _turns(len(schedule.table), lines, _WRITING, np.flatnonzero(there), *rows, found)
    sums = [
        edges
        for name, readers in _READERS.items()
        if BUFFERS[name].collective and written[NUMBER_OF[name]]
        for edges in _sums_read(schedule, name, [reader.kind for reader in readers])
    ]
    return np.concatenate([found[:size], *sums])


@kernel
def _turns(
    lines: Any, writing: Any, codes: Any, first_away: Any, last_away: Any, first_home: Any,
    last_home: Any, found: Any,
) -> int:  # fmt: skip
    """Fill in who waits for whom at each home; return how many do."""
    size = 0
    for line in range(len(lines)):
        buffer, kind, newer, last = lines[line]
        for home in range(first_away.shape[1]):
            writer, replaced = -1, last_home[kind, home] < 0
            for code in codes:
                there = last_away[code, home] >= 0
                if there and newer >= 0 and writing[newer, code]:
                    replaced = True
                if there and writing[buffer, code]:
                    row = last_away[code, home] if last else first_away[code, home]
                    earliest = row if writer < 0 else min(writer, row)
                    writer = max(writer, row) if last else earliest
            if writer >= 0 and not replaced:
                found[size, 0] = last_home[kind, home] if last else first_home[kind, home]
                found[size, 1], found[size, 2] = writer, buffer
                size += 1
    return size


def _sums_read(schedule: Schedule, name: str, kinds: Sequence[str]) -> Iterator[NDArray[np.int32]]:
    """Edges to all who write parts of a sum."""
    ends, turn = _ends_by_home(schedule, away=False), BUFFERS[name].turn
    for kind in kinds:
        first, last = ends.of(kind)
        rows = (first if turn == "first" else last)[last >= 0]
        yield _from_parts(schedule, name, ends.stage[last >= 0], rows)


def _from_parts(schedule: Schedule, name: str, stages: Ints, readers: Ints) -> NDArray[np.int32]:
    """Readers of a sum for some stages, each paired with all who write parts of it."""
    sums = _sums_of_stages(schedule.shape, name)
    wanted = [sums.get(stage, ()) for stage in stages.tolist()]
    parts = {numbers: _parts(schedule, name, numbers) for numbers in set(wanted)}
    found = [np.zeros(0, np.int32), *(parts[numbers] for numbers in wanted)]
    writers = np.concatenate(found)
    edges = np.full((len(writers), 3), NUMBER_OF[name], np.int32)
    edges[:, 0], edges[:, 1] = np.repeat(readers, [*map(len, found[1:])]), writers
    return edges


def _ends_by_home(schedule: Schedule, *, away: bool) -> HomeEnds:
    """Who comes first and last; with members of a gang `away` from home, or without them."""
    away = away or not schedule.gangs
    return schedule.derive(
        f"ends by home{', away too' * away}", lambda each: _find_ends(each, away=away)
    )


def _find_ends(schedule: Schedule, *, away: bool) -> HomeEnds:
    table, shape = schedule.table, schedule.shape
    there = np.ones(len(table), np.bool_) if away else ~helping_rows(schedule)
    columns = (table.kind, home_column(schedule), table.device, there)
    homes, first, last = _note_ends(len(table), *columns, shape.homes, shape.devices, len(LETTERS))
    return HomeEnds(homes // shape.devices, homes % shape.devices, first, last)


@kernel
def _note_ends(
    kind: Any, home: Any, device: Any, there: Any, homes: Any, devices: Any, kinds: Any
) -> Any:
    """All pairs of a home and a device, and for each kind their first and last rows; strange homes
    are the checker's."""
    place = np.full(homes * devices, -1, np.int32)
    for row in range(len(kind)):
        if home[row] < homes:
            place[home[row] * devices + device[row]] = 0
    pairs = np.flatnonzero(place == 0)
    place[pairs] = np.arange(len(pairs))
    first = np.full((kinds, len(pairs)), len(kind), np.int32)
    last = np.full((kinds, len(pairs)), -1, np.int32)
    for row in range(len(kind)):
        if home[row] < homes and there[row]:
            at = place[home[row] * devices + device[row]]
            first[kind[row], at] = min(first[kind[row], at], row)
            last[kind[row], at] = row
    return pairs, first, last


def _parts(schedule: Schedule, name: str, numbers: Collection[int]) -> Ints:
    """Rows that write the parts of some sums: the last one of each stage."""
    parts = schedule.derive(
        f"parts of {name}", lambda each: sum_parts(each, name, kinds_writing(name))
    )
    rows = dict.fromkeys(row for number, row in parts if number in numbers)
    return np.array([*rows], np.int32)


def sum_parts(schedule: Schedule, name: str, kinds: Collection[str]) -> list[tuple[int, int]]:
    """Number of the sum, and row, of each part that ops of these kinds write."""
    ends, sums = _ends_by_home(schedule, away=False), _sums_of_stages(schedule.shape, name)
    first, last = ends.of(kinds)
    order = np.argsort(first)
    order = order[last[order] >= 0]
    return [
        (number, row)
        for stage, row in zip(ends.stage[order].tolist(), last[order].tolist())
        for number in sums.get(stage, ())
    ]


@lru_cache(maxsize=1024)
def _sums_of_stages(shape: Shape, name: str) -> dict[int, tuple[int, ...]]:
    """Numbers of the sums of a name that each stage takes part in."""
    found: dict[int, tuple[int, ...]] = {}
    for kind in sorted(STAGE_KINDS):
        for rule in rules(shape)[kind][1]:
            for stage in range(rule.first, rule.end) if rule.buffer == name else ():
                found[stage] = tuple(dict.fromkeys((*found.get(stage, ()), rule.fixed)))
    return found


def rows_by_home(schedule: Schedule, kinds: Collection[str]) -> dict[tuple[int, int], Ints]:
    """Rows of some kinds, by the stage or shard and the device they stand for."""
    found = _grouped(schedule, kinds)
    if not schedule.gangs:
        return found
    helping = helping_rows(schedule)
    at_home = [(home, rows[~helping[rows]]) for home, rows in found.items()]
    there = [(home, rows) for home, rows in at_home if rows.size]
    return dict(sorted(there, key=lambda item: int(item[1][0])))


def _grouped(schedule: Schedule, kinds: Collection[str]) -> dict[tuple[int, int], Ints]:
    """The same with rows of members of a gang away from home; found once and kept."""

    def found(schedule: Schedule) -> dict[tuple[int, int], Ints]:
        rows = np.flatnonzero(schedule.table.of_kinds(kinds)).astype(np.int32)
        number, device = home_column(schedule)[rows], schedule.table.device[rows]
        key = number.astype(np.int64) * schedule.shape.devices + device
        order = np.argsort(key, kind="stable")
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        groups = np.split(rows[order], starts[1:]) if len(rows) else []
        groups.sort(key=lambda group: int(group[0]))
        homes = home_column(schedule), schedule.table.device
        return {(int(homes[0][each[0]]), int(homes[1][each[0]])): each for each in groups}

    return schedule.derive(f"rows of {''.join(sorted(kinds))} by home", found)

"""How long buffers live: from their write to their last read, derived from the meaning table.

Two views. `uses_of` says, for every buffer instance, after which row it can be freed: the
lowering turns that into frees. `level_changes` says by how much each row raises and lowers its
device's memory: the simulator turns that into curves and peaks.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.buffers import BUFFERS
from penstock.core.collectives import collectives_of
from penstock.core.gangs import helping_rows
from penstock.core.graph import columns_of, writers_of
from penstock.core.host_order import unit_ends
from penstock.core.kernel import kernel
from penstock.core.meaning import MEANING
from penstock.core.rules import ABSENT, NAMES, buffer_bases, compile_rules
from penstock.core.schedule import Schedule
from penstock.core.table import CODE, LETTERS, Ints, Ticks


class Uses(NamedTuple):
    """First write and last use of every buffer instance, -1 where nobody writes it.

    Instances are numbered as core/rules.py does; the slices of a microbatch's keys and values
    share one allocation, so only its first unit has a last use.
    """

    written: Ints
    last: Ints


def uses_of(schedule: Schedule) -> Uses:
    """Rows that write each buffer instance and use it last, on the device of the writer."""
    table = schedule.table
    compiled = compile_rules(schedule.shape, table.kinds)
    writers = writers_of(schedule, compiled)
    whole = np.array([BUFFERS[name].per == "microbatch" for name in NAMES], np.uint8)
    uses = np.full((2, compiled.room), -1, np.int32)
    for side, last in zip((compiled.reads, compiled.writes), uses):
        _use(
            len(table), *columns_of(schedule), table.device, whole, *side, writers, last,
        )  # fmt: skip
    # A read comes after the write, whatever their rows: they may stand on different streams.
    return Uses(writers, np.where(uses[0] >= 0, uses[0], uses[1]).astype(np.int32))


@kernel
def _use(
    kind: Any, stage: Any, mb: Any, slice: Any, unit: Any, counts: Any, units: Any, device: Any,
    whole: Any, line_start: Any, place: Any, newer: Any, step: Any, shards: Any, buffer: Any,
    writers: Any, last: Any,
) -> None:  # fmt: skip
    """Note for every buffer instance the last row that reads or writes it on its own device."""
    for row in range(len(kind)):
        if unit[row] < 0:
            continue
        for line in range(line_start[kind[row]], line_start[kind[row] + 1]):
            if place[line, stage[row]] == ABSENT:
                continue
            if step[line] != 0 and not 0 <= slice[row] + step[line] < counts[mb[row]]:
                continue
            at = unit[row] + step[line]
            for _ in range(max(shards[line], 1)):
                index = newer[line, stage[row]]
                if index < 0 or writers[index + at] < 0:
                    index = place[line, stage[row]]
                written = index >= 0 and writers[index + at] >= 0
                if written and device[writers[index + at]] == device[row]:
                    index += at
                    if whole[buffer[line]]:
                        index -= slice[row] + step[line]
                    last[index] = max(last[index], row)
                at += units


TEMPORARY = "temp"
"""Size of what an op needs only while it runs. It is no buffer: nobody else reads it."""


GIVEN = "given"
"""Size of what the ends of the model and the vocabulary shards give each other. Only some stages
have such buffers, so they are looked at one by one."""


class Factors(NamedTuple):
    """Multiples of a size that each kind of op adds to memory at its start and at its end."""

    start: Ticks
    end: Ticks


@cache
def size_factors(size: str) -> Factors:
    """Derived for buffers of one unit: a writer adds, the op that reads it takes away.

    Of the kinds that read such a buffer a unit has exactly one (B or I, never both), so what a
    kind does is the same for all its ops. An op that reads the first generation moves it out; the
    one that writes the next generation brings it back.
    """
    start, end = np.zeros(len(LETTERS), np.int64), np.zeros(len(LETTERS), np.int64)
    if size == TEMPORARY:
        return Factors(start + 1, end - 1)
    for name, buffer in BUFFERS.items():
        if buffer.size != size or buffer.per != "unit" or size == GIVEN:
            continue
        for kind, entry in MEANING.items():
            if any(ref.buffer == name for ref in entry.writes):
                (start if buffer.born == "start" else end)[CODE[kind]] += 1
                if not _is_read(name):
                    end[CODE[kind]] -= 1
            if any(ref.buffer == name for ref in entry.reads):
                end[CODE[kind]] -= 1
    return Factors(start, end)


def _is_read(name: str) -> bool:
    """Whether some op reads the buffer, under its own name or as a newer generation."""
    return any(
        name in (ref.buffer, BUFFERS[ref.buffer].newer)
        for entry in MEANING.values()
        for ref in entry.reads
    )


def level_changes(schedule: Schedule, amounts: Mapping[str, Ticks]) -> tuple[Ticks, Ticks]:
    """What each row adds to its device's memory at its start, and (signed) at its end.

    `amounts` gives for every size name what a buffer of the row's stage and unit holds.
    """
    table = schedule.table
    at_start, at_end = np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
    for amount, factors in _by_column(amounts):
        _change(len(table), table.kind, amount, *factors, at_start, at_end)
    for size, amount in amounts.items():
        for name, buffer in BUFFERS.items():
            if buffer.size == size and buffer.per == "microbatch":
                _add_shared(schedule, name, amount, (at_start, at_end))
    if GIVEN in amounts and schedule.shape.shards:
        _add_given(schedule, amounts[GIVEN], (at_start, at_end))
    for op, share in schedule.shares:
        row = table.row_of(op)
        for change in (at_start, at_end):
            change[row] = int(change[row] * share)
    if schedule.gangs:  # what a gang writes is kept at home; its helpers have room while they run
        helping = helping_rows(schedule)
        own = amounts[TEMPORARY][helping] if TEMPORARY in amounts else 0
        at_start[helping], at_end[helping] = own, -own
    return at_start, at_end


def _by_column(amounts: Mapping[str, Ticks]) -> list[tuple[Ticks, Factors]]:
    """Columns with what kinds do to them; sizes that are the same column are counted at once."""
    found: dict[int, tuple[Ticks, Factors]] = {}
    for size, amount in amounts.items():
        factors = size_factors(size)
        if id(amount) in found:
            other = found[id(amount)][1]
            factors = Factors(factors.start + other.start, factors.end + other.end)
        found[id(amount)] = (amount, factors)
    return list(found.values())


@kernel
def _change(kind: Any, amount: Any, plus: Any, minus: Any, at_start: Any, at_end: Any) -> None:
    """Add to each row what its kind does to a buffer of its stage and unit."""
    for row in range(len(kind)):
        at_start[row] += plus[kind[row]] * amount[row]
        at_end[row] += minus[kind[row]] * amount[row]


def _add_shared(schedule: Schedule, name: str, amount: Ticks, changes: tuple[Ticks, Ticks]) -> None:
    """Add a buffer that all slices of a microbatch share: first write to last use."""
    table, shape = schedule.table, schedule.shape
    writing = _rows(schedule, [k for k, e in MEANING.items() if _names(e.writes, name)])
    using = _rows(schedule, [k for k, e in MEANING.items() if _names(e.writes + e.reads, name)])
    room = shape.stages * shape.microbatches
    key = table.stage.astype(np.int64) * shape.microbatches + table.mb
    held, born, died = np.zeros(room, np.int64), np.zeros(room, int), np.zeros(room, int)
    np.add.at(held, key[writing], amount[writing])
    born[key[writing[::-1]]] = writing[::-1]
    died[key[using]] = using
    alive = np.flatnonzero(held)
    np.add.at(changes[0], born[alive], held[alive])
    np.subtract.at(changes[1], died[alive], held[alive])


_HANDED_OVER = frozenset({"out", "partial"})
"""What a reader keeps as its own from its start on, among its activations or with its logits."""


def _add_given(schedule: Schedule, amount: Ticks, changes: tuple[Ticks, Ticks]) -> None:
    """Add what the ends of the model and the shards give each other, on the device that writes it:
    until its last reader there, or until a collective has it."""
    written, last = uses_of(schedule)
    gone = schedule.derive("rows of collected parts", _collected)
    at_start, at_end = changes
    for name, (base, room) in buffer_bases(schedule.shape, schedule.table.kinds).items():
        if BUFFERS[name].size != GIVEN:
            continue
        here = slice(base, base + room)
        alive = written[here] >= 0
        writer, reader = written[here][alive], last[here][alive]
        held = amount[writer]
        np.add.at(at_start if BUFFERS[name].born == "start" else at_end, writer, held)
        own = reader == writer
        ends = np.where(own, gone[writer], reader)
        early = ~own & (name in _HANDED_OVER)
        np.subtract.at(at_start, ends[early], held[early])
        np.subtract.at(at_end, ends[~early], held[~early])


def _collected(schedule: Schedule) -> NDArray[np.int64]:
    """For each row that writes a part of a collective the row of its lane during which all parts
    are there, if every op took one tick; other rows stand for themselves."""
    table, ends, collectives = schedule.table, unit_ends(schedule), collectives_of(schedule)
    found = np.arange(len(table))
    if not len(collectives):
        return found
    rows, start = collectives.rows.astype(np.int64), collectives.start
    complete = np.maximum.reduceat(ends[rows], start[:-1]).repeat(np.diff(start))
    lane = table.lane.astype(np.int64)
    turn = (
        int(ends.max()) + 1
    )  # rows of a lane end one after the other, and lanes follow each other
    after = np.searchsorted(lane * turn + ends, lane[rows] * turn + complete)
    found[rows] = np.maximum(rows, np.minimum(after, table.lane_start[lane[rows] + 1] - 1))
    return found


def _names(refs: tuple[Any, ...], name: str) -> bool:
    return any(ref.buffer == name for ref in refs)


def _rows(schedule: Schedule, kinds: list[str]) -> NDArray[np.int64]:
    """Rows of some kinds, in lane order, without helpers of gangs."""
    wanted = schedule.table.of_kinds(kinds)
    return np.flatnonzero(wanted & ~helping_rows(schedule) if schedule.gangs else wanted)

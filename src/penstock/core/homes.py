"""Where weights live, and the order of the ops that serve a whole stage.

The lane an op stands in decides its device, so the home of a stage's weights is derived: every
device that runs an op which reads or writes them. A vocabulary shard lives on the device of its
number; its weights are numbered behind those of all stages.
"""

from collections.abc import Collection
from functools import lru_cache

import numpy as np

from penstock.core.buffers import BUFFERS
from penstock.core.gangs import helping_rows
from penstock.core.meaning import MEANING, Ref, kinds_writing, rules
from penstock.core.ops import SHARD_KINDS, STAGE_KINDS
from penstock.core.rules import NUMBER_OF
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.core.table import CODE, Ints

_WEIGHT = ("weight", "dw")


def weight_homes(schedule: Schedule) -> dict[int, list[int]]:
    """Devices on which each stage's weights are read or written; weightless stages have none.

    Members of a gang away from home help without them.
    """
    found = schedule.derive("weight homes", _weight_homes)
    return {stage: [*devices] for stage, devices in found.items()}


def _weight_homes(schedule: Schedule) -> dict[int, list[int]]:
    table = schedule.table
    touching = [
        kind
        for kind, entry in MEANING.items()
        if any(ref.buffer in _WEIGHT for ref in (*entry.reads, *entry.writes))
    ]
    rows = table.of_kinds(touching) & ~helping_rows(schedule)
    rows &= home_column(schedule) < schedule.shape.stages
    seen = np.zeros((schedule.shape.stages, schedule.shape.devices), np.bool_)
    seen[table.stage[rows], table.device[rows]] = True
    homes: dict[int, list[int]] = {}
    for stage, device in np.argwhere(seen).tolist():
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


def home_edges(schedule: Schedule) -> list[tuple[int, int, int]]:
    """Edges (reader row, writer row, buffer) that gathers, reductions and updates bring along."""
    table = schedule.table
    if not any(CODE[kind] in table.kind for kind in STAGE_KINDS):
        return []
    return [
        (reader, writer, NUMBER_OF[name])
        for name, buffer in BUFFERS.items()
        if buffer.per == "home"
        for reader, writer in _turns(schedule, name)
    ]


def _turns(schedule: Schedule, name: str) -> list[tuple[int, int]]:
    """For one home buffer: who reads it, paired with the write that reader waits for."""
    turn = BUFFERS[name].turn
    first = 0 if turn == "first" else -1
    edges: list[tuple[int, int]] = []
    for kind in (kind for kind in MEANING if kind in schedule.table.kinds):
        for ref in MEANING[kind].reads:
            if name not in (ref.buffer, BUFFERS[ref.buffer].newer if _newest(ref) else ""):
                continue
            assert not ref.stage, "weights are those of the op's own stage"
            newer = BUFFERS[name].newer if name == ref.buffer and _newest(ref) else ""
            written = _ends_by_home(schedule, kinds_writing(name), away=True)
            replaced = _ends_by_home(schedule, kinds_writing(newer), away=True) if newer else {}
            readers = _ends_by_home(schedule, kind, away=False)
            if BUFFERS[name].collective:
                edges += _from_parts(
                    schedule, name, {at: ends[first] for at, ends in readers.items()}
                )
                continue
            edges += [
                (ends[first], written[home][first])
                for home, ends in readers.items()
                if home in written and home not in replaced
            ]
    return edges


def _from_parts(
    schedule: Schedule, name: str, readers: dict[tuple[int, int], int]
) -> list[tuple[int, int]]:
    """Readers of a sum, by home, each paired with all who write parts of it."""
    parts = {stage: parts_of(schedule, name, stage) for stage in {stage for stage, _ in readers}}
    return [(reader, writer) for (stage, _), reader in readers.items() for writer in parts[stage]]


def _ends_by_home(
    schedule: Schedule, kinds: Collection[str], *, away: bool
) -> dict[tuple[int, int], tuple[int, int]]:
    """The first and the last row of some kinds, by the stage or shard and the device they stand
    for; with members of a gang `away` from home, or without them."""
    away = away or not schedule.gangs
    name = f"ends of {''.join(sorted(kinds))} by home{', away too' * away}"
    return schedule.derive(name, lambda each: _find_ends(each, kinds, away=away))


def _find_ends(
    schedule: Schedule, kinds: Collection[str], *, away: bool
) -> dict[tuple[int, int], tuple[int, int]]:
    chosen = schedule.table.of_kinds(kinds)
    if not away:
        chosen &= ~helping_rows(schedule)
    rows, devices = np.flatnonzero(chosen), schedule.shape.devices
    key = home_column(schedule)[rows] * devices + schedule.table.device[rows]
    first, last = np.full((2, int(key.max(initial=-1)) + 1), -1)
    first[key[::-1]], last[key] = rows[::-1], rows  # of equal keys the last one stays
    homes = np.flatnonzero(first >= 0)
    homes = homes[np.argsort(first[homes])]
    ends = zip(first[homes].tolist(), last[homes].tolist())
    return {divmod(home, devices): each for home, each in zip(homes.tolist(), ends)}


def parts_of(schedule: Schedule, name: str, stage: int) -> list[int]:
    """Rows that write the parts of a sum as a stage reads it: the last one of each stage."""
    rows = schedule.derive(f"parts of {name}", lambda each: _rows_of_sums(each, name))
    wanted = sums_of(schedule.shape, name, stage)
    if len(wanted) == 1:
        return rows.get(wanted[0], [])
    found = {row for number in wanted for row in rows.get(number, [])}
    return [row for row in rows.get(_EVERY, []) if row in found]


_EVERY = -1
"""Stands for all sums."""


def _rows_of_sums(schedule: Schedule, name: str) -> dict[int, list[int]]:
    """Rows that write parts, by the number of the sum, and all of them."""
    found: dict[int, dict[int, None]] = {_EVERY: {}}
    for number, row in sum_parts(schedule, name, kinds_writing(name)):
        found.setdefault(number, {})[row] = found[_EVERY][row] = None
    return {number: [*rows] for number, rows in found.items()}


def sum_parts(schedule: Schedule, name: str, kinds: Collection[str]) -> list[tuple[int, int]]:
    """Number of the sum, and row, of each part that ops of these kinds write."""
    return [
        (number, last)
        for (stage, _), (_, last) in _ends_by_home(schedule, kinds, away=False).items()
        for number in sums_of(schedule.shape, name, stage)
    ]


@lru_cache(maxsize=4096)
def sums_of(shape: Shape, name: str, stage: int) -> list[int]:
    """Numbers of the sums of a name that a stage takes part in."""
    writers = (rules(shape)[kind][1] for kind in sorted(STAGE_KINDS))
    found = [
        rule.fixed
        for of_kind in writers
        for rule in of_kind
        if rule.buffer == name and rule.first <= stage < rule.end
    ]
    return list(dict.fromkeys(found))


def _newest(ref: Ref) -> bool:
    return ref.generation == "newest"


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

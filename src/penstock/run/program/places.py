"""Where each op of a device finds its buffers: the meaning table, resolved to places in a list.

A plan may have tens of thousands of ops and must be ready in milliseconds. So the table is looked
at once for each kind and stage, and what is left for an op is to add its unit.
"""

from functools import cached_property
from typing import NamedTuple

from penstock.core.buffers import BUFFERS
from penstock.core.meaning import MEANING, Rule, rules
from penstock.core.ops import STAGE_KINDS, Op
from penstock.core.program import Program
from penstock.run.program.calls import DROPPED, NOTHING


class _Unit(NamedTuple):
    """A buffer of one unit, or of a microbatch whose slices share one allocation."""

    base: int
    newer: int
    """The same of its next generation; negative where nobody writes one."""
    step: int
    shared: bool


class _Home(NamedTuple):
    """A buffer of a stage."""

    name: str
    number: int


_Way = _Unit | _Home
_Ways = tuple[tuple[_Way, ...], ...]
"""For each buffer of a kind, in the order of the table, how an op finds it."""


READ, WRITE = 0, 1
"""Sides of the meaning table."""


def names_of(kind: str, side: int) -> tuple[str, ...]:
    """Buffers that a kind reads or writes, each once, as the table orders them.

    >>> names_of("W", READ), names_of("W", WRITE)
    (('stash', 'keep'), ('dw',))
    """
    return tuple(dict.fromkeys(ref.buffer for ref in MEANING[kind][side]))


def _part(name: str) -> str:
    """What a stage's part of a sum is called among the places of a device."""
    return f"part of {name}"


class PlaceTable:
    """Gives places to the buffers of one device as they are met."""

    def __init__(self, program: Program, device: int) -> None:
        self.program, self.device = program, device
        self.shape = program.schedule.shape
        self.homes: dict[tuple[str, int], int] = {}
        self._units: dict[int, int] = {}
        self._next = 2
        self._ways: dict[tuple[str, int, int], _Ways] = {}

    def __len__(self) -> int:
        return self._next

    def _new(self) -> int:
        self._next += 1
        return self._next - 1

    def reads(self, op: Op, unit: int) -> tuple[int, ...]:
        return self._all(op, unit, READ, NOTHING)

    def writes(self, op: Op, unit: int) -> tuple[int, ...]:
        return self._all(op, unit, WRITE, DROPPED)

    def of_unit(self, index: int) -> int:
        """The place of a buffer instance by its dense number."""
        place = self._units.get(index)
        if place is None:
            place = self._units[index] = self._new()
        return place

    def of_home(self, name: str, number: int) -> int:
        if (name, number) not in self.homes:
            self.homes[name, number] = self._new()
        return self.homes[name, number]

    def of_part(self, name: str, stage: int) -> int:
        """The place of a stage's part of a sum."""
        return self.of_home(_part(name), stage)

    def known(self, index: int) -> int | None:
        """The place of a dense number, if some op of this device reads or writes it."""
        return self._units.get(index)

    def _all(self, op: Op, unit: int, side: int, absent: int) -> tuple[int, ...]:
        key = (op.kind, op.stage, side)
        if key not in self._ways:
            self._ways[key] = self._resolve(*key)
        slices = 1 if unit < 0 else self.shape.slices[op.mb]
        return tuple(
            [self._find(ways, op.slice, unit, slices) or absent for ways in self._ways[key]]
        )

    def _find(self, ways: tuple[_Way, ...], slice: int, unit: int, slices: int) -> int:
        """The place, or 0."""
        for way in ways:
            if len(way) == 2:
                return self.of_home(*way)
            base, newer, step, shared = way
            if 0 <= slice + step < slices:
                # the slices of one allocation share its place
                at = unit - slice if shared else unit + step
                newest = newer >= 0 and newer + at in self._loaded
                return self.of_unit((newer if newest else base) + at)
        return 0

    def _resolve(self, kind: str, stage: int, side: int) -> _Ways:
        found: dict[str, list[_Way]] = {name: [] for name in names_of(kind, side)}
        for rule in rules(self.shape)[kind][side]:
            if rule.first <= stage < rule.end:
                found[rule.buffer].append(self._way(rule, stage, side))
        return tuple(tuple(ways) for ways in found.values())

    def _way(self, rule: Rule, stage: int, side: int) -> _Way:
        number = stage + rule.offset if rule.fixed < 0 else rule.fixed
        if BUFFERS[rule.buffer].collective and side == WRITE:
            return _Home(_part(rule.buffer), stage)  # a part of its own in each stage
        if BUFFERS[rule.buffer].per == "home":
            newest = side == READ and (rule.newer, stage) in self._written_homes
            return _Home(rule.newer if newest else rule.buffer, number)
        shared = BUFFERS[rule.buffer].per == "microbatch"
        newer = rule.newer if side == READ else ""
        return _Unit(
            self._first(rule.buffer, number), self._first(newer, number), rule.slice, shared
        )

    def _first(self, name: str, number: int) -> int:
        """The dense number of a buffer's first unit; -1 where no op writes the buffer."""
        if name not in self.program.bufs:
            return -1
        return self.program.bufs[name][0] + number * self.shape.units

    @cached_property
    def _loaded(self) -> set[int]:
        """Dense numbers of the activations that come back from the host."""
        if "back" not in self.program.bufs:
            return set()
        schedule = self.program.schedule
        rows = schedule.table.of_kinds("L").nonzero()[0].tolist()
        stages, units = schedule.table.stage, schedule.unit
        return {self._first("back", int(stages[row])) + int(units[row]) for row in rows}

    @cached_property
    def _written_homes(self) -> set[tuple[str, int]]:
        """Buffers of stages that an op of this device writes, as a reduction does."""
        table = self.program.schedule.table
        rows = (table.device == self.device) & table.of_kinds(STAGE_KINDS)
        return {
            (ref.buffer, int(table.stage[row]))
            for row in rows.nonzero()[0]
            for ref in MEANING[table.op(int(row)).kind].writes
        }

"""Where each op of a device finds its buffers: the meaning table, resolved to places in a list.

A plan may have tens of thousands of ops and must be ready in milliseconds. So the table is looked
at once for each kind and stage, and what is left for an op is to add its unit.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import compress, count
from typing import NamedTuple

from penstock.core.buffers import BUFFERS
from penstock.core.meaning import MEANING, Rule, rules
from penstock.core.ops import STAGE_KINDS, Op
from penstock.core.program import Program
from penstock.run.program.calls import DROPPED, NOTHING
from penstock.run.program.rotation import in_buffer, rotation_of


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
_Ways = Sequence[_Way]
"""How the ops of a kind and stage find a buffer: in the first way that leads to one."""


class _Alike(NamedTuple):
    """The ops of one kind and stage on a device."""

    turns: list[int]
    """Their numbers among the ops of the device."""
    units: list[int]
    slices: list[int]
    counts: list[int]
    """Slices that the microbatch of each has."""


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
    """Gives places to the buffers of one device's ops, in their order."""

    def __init__(
        self, program: Program, device: int, ops: Sequence[Op | None], units: list[int]
    ) -> None:
        """None stands for an op that only helps a device where its stage is."""
        self.program, self.device = program, device
        self.shape = program.schedule.shape
        self.homes: dict[tuple[str, int], int] = {}
        """Places of what belongs to a stage."""
        self.units: dict[int, int] = {}
        """Places of buffer instances that the ops read or write, by their dense numbers."""
        self._next = count(2)  # behind NOTHING and DROPPED
        self._ops, self._rotation = ops, rotation_of(program.schedule, device)
        self._alike = _sorted(ops, units, self.shape.slices)
        self.reads = self._side(READ, NOTHING)
        """For each op the places of what it reads, in the order of the meaning table."""
        self.writes = self._side(WRITE, DROPPED)

    def __len__(self) -> int:
        return 2 + len(self.homes) + len(self.units)

    def of_units(self, indices: Sequence[int]) -> list[int]:
        """The places of buffer instances by their dense numbers, new ones where they have none."""
        new = [index for index in indices if index not in self.units]
        self.units.update(zip(dict.fromkeys(new), self._next))
        return [self.units[index] for index in indices]

    def of_home(self, name: str, number: int) -> int:
        if (name, number) not in self.homes:
            self.homes[name, number] = next(self._next)
        return self.homes[name, number]

    def of_part(self, name: str, stage: int) -> int:
        """The place of a stage's part of a sum."""
        return self.of_home(_part(name), stage)

    def of_shard(self, name: str, unit: int) -> int:
        """The place of this device's part of what all shards have of a unit."""
        return self.of_units([self._first(name, self.device) + unit])[0]

    def _side(self, side: int, absent: int) -> list[tuple[int, ...]]:
        places: list[tuple[int, ...]] = [()] * len(self._ops)
        for (kind, stage), ops in self._alike.items():
            ways = self._resolve(kind, stage, side)
            for turn, found in zip(ops.turns, zip(*(self._column(w, ops, absent) for w in ways))):
                places[turn] = found
        return places

    def _column(self, ways: _Ways, ops: _Alike, absent: int) -> list[int]:
        """The place of one buffer for each of the ops."""
        if not ways:
            return [absent] * len(ops.turns)
        way = ways[0]
        if isinstance(way, _Home):
            return self._home_column(way, ops)
        base, newer, step, shared = way
        # the slices of one allocation share its place
        at = [u - s for u, s in zip(ops.units, ops.slices)] if shared else ops.units
        if newer >= 0:
            return self.of_units([newer + u if newer + u in self._loaded else base + u for u in at])
        if not step:
            return self.of_units([base + u for u in at])
        base += 0 if shared else step
        there = [0 <= s + step < n for s, n in zip(ops.slices, ops.counts)]
        found = iter(self.of_units([base + u for u in compress(at, there)]))
        others = self._column(ways[1:], ops, absent)
        return [next(found) if is_there else other for is_there, other in zip(there, others)]

    def _home_column(self, home: _Home, ops: _Alike) -> list[int]:
        """The place of a stage's buffer; where buffers rotate, of the one that each op uses. Stages
        without weights use none of these, and have nothing at their places."""
        name, number = home
        rotating = self._rotation.of(name)
        if not rotating or number in self.shape.weightless:
            return [self.of_home(name, number)] * len(ops.turns)
        found = (op for turn in ops.turns if (op := self._ops[turn]) is not None)
        buffers = (rotating[op] for op in found)
        return [self.of_home(in_buffer(name, buffer), number) for buffer in buffers]

    def _resolve(self, kind: str, stage: int, side: int) -> list[_Ways]:
        """For each buffer of a kind, in the order of the table, how its ops find it."""
        found: dict[str, list[_Way]] = {name: [] for name in names_of(kind, side)}
        for rule in rules(self.shape)[kind][side]:
            if rule.first <= stage < rule.end:
                found[rule.buffer].append(self._way(rule, stage, side))
        return list(found.values())

    def _way(self, rule: Rule, stage: int, side: int) -> _Way:
        number = stage + rule.offset if rule.fixed < 0 else rule.fixed
        if rule.shards == "all":
            number = self.device  # a collective puts the whole in the place of the own part
        if BUFFERS[rule.buffer].per == "home":
            if BUFFERS[rule.buffer].collective and side == WRITE:
                return _Home(_part(rule.buffer), stage)  # a part of its own in each stage
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


def _sorted(
    ops: Sequence[Op | None], units: Sequence[int], slices: Sequence[int]
) -> dict[tuple[str, int], _Alike]:
    """The ops by kind and stage; ops of a whole stage have a unit below 0 and one slice."""
    found: dict[tuple[str, int], _Alike] = {}
    for turn, (op, unit) in enumerate(zip(ops, units)):
        if op is None:
            continue
        kind, stage, mb, slice = op
        alike = found.get((kind, stage))
        if alike is None:
            alike = found[kind, stage] = _Alike([], [], [], [])
        alike.turns.append(turn)
        alike.units.append(unit)
        alike.slices.append(slice)
        alike.counts.append(1 if unit < 0 else slices[mb])
    return found

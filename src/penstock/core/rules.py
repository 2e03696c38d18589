"""The meaning table as integer arrays, so that a compiled loop can apply it to every row.

A rule becomes one line of numbers. A buffer instance becomes one index into a dense array: the
buffer's base, plus its number (stage, shard or skip edge) times the units, plus the unit. Only
buffers that some op of the schedule writes get room there.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.buffers import BUFFERS, SHARDED, WHOLE_MODEL
from penstock.core.meaning import Rule, rules, stages_alone
from penstock.core.shape import Shape
from penstock.core.table import LETTERS, Ints

NAMES = tuple(BUFFERS)
NUMBER_OF = {name: number for number, name in enumerate(NAMES)}

ABSENT, UNWRITTEN = -1, -2
"""In place of an index: the stage has no such reference; it has, but no op writes the buffer."""


class Side(NamedTuple):
    """All reads, or all writes: lines `start[kind] : start[kind + 1]` belong to a kind."""

    start: Ints
    place: NDArray[np.int64]
    """By line and stage: index of the instance's first unit, ABSENT or UNWRITTEN."""
    newer: NDArray[np.int64]
    """The same for the next generation of the buffer."""
    step: Ints
    """Slices further along the sequence."""
    shards: Ints
    """Shards to visit, one after the other; 0 for a plain reference."""
    buffer: Ints


class Compiled(NamedTuple):
    """The table of one shape, restricted to the kinds that occur."""

    reads: Side
    writes: Side
    room: int
    """Length of the dense array over all buffer instances."""


def buffer_bases(shape: Shape, kinds: frozenset[str]) -> dict[str, tuple[int, int]]:
    """Where each buffer that some kind writes begins in the dense array, and its room there."""
    table = rules(shape)
    written = [rule.buffer for kind in LETTERS if kind in kinds for rule in table[kind][1]]
    bases: dict[str, tuple[int, int]] = {}
    end = 0
    for name in dict.fromkeys(written):
        if BUFFERS[name].per != "home":
            bases[name] = (end, instances(shape, name) * shape.units)
            end += bases[name][1]
    return bases


@lru_cache(maxsize=256)
def compile_rules(shape: Shape, kinds: frozenset[str]) -> Compiled:
    """The rules of the kinds that occur, with a base for every buffer they write."""
    return _of_units(_compile_one_unit(stages_alone(shape), kinds), shape.units)


@lru_cache(maxsize=256)
def compile_merged(shape: Shape, kinds: frozenset[str]) -> Compiled:
    """The same for order alone: buffers that the same ops write are one, and read once.

    A backward reads an activation, what is kept of it and the keys and values; all three come from
    one forward, so one look-up says whether that forward stands in front of it.
    """
    return _of_units(_merge_one_unit(stages_alone(shape), kinds), shape.units)


def _of_units(one: Compiled, units: int) -> Compiled:
    """The rules of one unit for so many: each instance has room for all of them."""

    def scaled(side: Side) -> Side:
        place, newer = (np.where(at > 0, at * units, at) for at in (side.place, side.newer))
        return side._replace(place=place, newer=newer)

    return Compiled(scaled(one.reads), scaled(one.writes), one.room * units)


@lru_cache(maxsize=256)
def _compile_one_unit(shape: Shape, kinds: frozenset[str]) -> Compiled:
    bases = buffer_bases(shape, kinds)
    return _compile(shape, kinds, {name: base for name, (base, _) in bases.items()})


@lru_cache(maxsize=256)
def _merge_one_unit(shape: Shape, kinds: frozenset[str]) -> Compiled:
    written: dict[str, list[tuple[object, ...]]] = {}
    for kind in LETTERS:
        for rule in rules(shape)[kind][1] if kind in kinds else ():
            written.setdefault(rule.buffer, []).append((kind, *rule[1:-1]))
    bases = buffer_bases(shape, kinds)
    alike: dict[tuple[tuple[object, ...], ...], int] = {}
    for name, (base, _) in bases.items():
        alike.setdefault(tuple(written[name]), base)
    return _compile(shape, kinds, {name: alike[tuple(written[name])] for name in bases})


def _compile(shape: Shape, kinds: frozenset[str], bases: dict[str, int]) -> Compiled:
    table = rules(shape)
    sides = [_side(shape, {k: table[k][side] for k in kinds}, bases) for side in (0, 1)]
    room = max((base + instances(shape, n) * shape.units for n, base in bases.items()), default=0)
    return Compiled(sides[0], sides[1], room)


def instances(shape: Shape, name: str) -> int:
    """How many numbers (stages, shards, edges) a buffer has."""
    if name in WHOLE_MODEL:
        return 1
    if name in SHARDED:
        return shape.devices
    return len(shape.skips) if name in ("skip", "dskip") else shape.stages


def _side(shape: Shape, of_kind: dict[str, tuple[Rule, ...]], bases: dict[str, int]) -> Side:
    lines: list[Rule] = []
    start = [0]
    for kind in LETTERS:
        seen: set[tuple[object, ...]] = set()
        for rule in of_kind.get(kind, ()):
            same = (bases.get(rule.buffer), bases.get(rule.newer), *rule[1:-1])
            if BUFFERS[rule.buffer].per != "home" and same not in seen:
                lines.append(rule)
                seen.add(same)
        start.append(len(lines))
    place, newer = (
        _places(shape, lines, [bases.get(name, UNWRITTEN) for name in names])
        for names in ([rule.buffer for rule in lines], [rule.newer for rule in lines])
    )
    return Side(
        np.array(start, np.int32),
        place,
        newer,
        np.array([rule.slice for rule in lines], np.int32),
        np.array([shape.devices * (rule.shards == "all") for rule in lines], np.int32),
        np.array([NUMBER_OF[rule.buffer] for rule in lines], np.int32),
    )


def _places(shape: Shape, lines: list[Rule], bases: list[int]) -> NDArray[np.int64]:
    """Where each stage finds the instances that rules name, whose buffers begin at these bases."""
    columns = [(rule.first, rule.end, rule.offset, rule.fixed) for rule in lines]
    first, end, offset, fixed = np.array(columns, np.int64).reshape(-1, 4).T[:, :, None]
    here, base = np.arange(shape.stages), np.array(bases, np.int64)[:, None]
    number = np.where(fixed < 0, here + offset, fixed)
    number[[rule.shards == "all" for rule in lines]] = 0
    places = np.where(base < 0, UNWRITTEN, base + number * shape.units)
    return np.where((first <= here) & (here < end), places, ABSENT)

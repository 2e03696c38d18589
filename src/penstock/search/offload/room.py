"""Waiting for an offload only where the room is needed.

A plan in time says which offloads have ended when a forward starts. Most forwards would find room
without them; one that waits all the same loses time whenever a copy is late. So the holds are set
anew, from the order alone: each op waits for as few copies as keep the proven level of its device
within its limit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from penstock.check.memory import Way, bound, compute_levels, copy_lanes
from penstock.core.schedule import After, Schedule
from penstock.core.table import Ticks
from penstock.cost.model import Cost
from penstock.sim.memory import changes_of


def proven_levels(schedule: Schedule, cost: Cost) -> list[Fraction]:
    """What no device exceeds in any timing that the order allows."""
    at_start, at_end, grain = changes_of(schedule, cost)
    devices = range(schedule.shape.devices)
    return [int(bound(schedule, at_start, at_end, at)[0].max()) * grain for at in devices]


def hold_for_room(schedule: Schedule, cost: Cost, limits: Sequence[Fraction]) -> Schedule:
    """The schedule, whose levels are proven to keep to the limits, with as few holds of compute
    ops on offloads as still prove it."""
    at_start, at_end, grain = changes_of(schedule, cost)
    others = [note for note in schedule.after if note.op.kind in "OL" or note.earlier.kind != "O"]
    loose = replace(schedule, after=tuple(others), derived={})
    for device, limit in enumerate(limits):
        for copies in copy_lanes(schedule, device):
            rows, *levels = compute_levels(loose, at_start, at_end, device)
            way = Way.of(loose, rows, copies, (at_start, at_end))
            rooms = [int(limit // grain) - level for level in levels]
            for place, count in _needed(way, *rooms):
                op, earlier = (schedule.table.op(row) for row in (rows[place], copies[count - 1]))
                others.append(After(op, earlier))
    return replace(schedule, after=tuple(others), derived={})


def _needed(way: Way, before: Ticks, during: Ticks) -> Iterator[tuple[int, int]]:
    """Compute ops, by place, that must wait for so many copies, given the room of each op."""
    passed = 0
    for place, ended in enumerate(way.ended.tolist()):
        known = passed = max(passed, ended)
        passed = _least(way, passed, int(way.begun[place]), int(during[place]))
        if place + 1 < len(before):  # what is held when this op starts is held until the next one
            passed = _least(way, passed, int(way.begun[place + 1]), int(before[place + 1]))
        if passed > known:
            yield place, passed


def _least(way: Way, passed: int, begun: int, room: int) -> int:
    """How many copies must have ended so that the level from there on fits into the room."""
    ahead = way.path[2 * passed : 2 * begun + 1]
    above = np.flatnonzero(ahead > room)
    return passed if not above.size else passed + int(above[-1]) // 2 + 1

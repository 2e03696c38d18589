"""Greedy reordering of a repeated block: fill holes at both ends without raising the peak.

A repeated block has no holes in its stable phase and many before and after it. Passes of the
warm-up and of the cool-down move to the earliest free slot behind what they wait for, unless that
takes more memory than the stable phase does. Weight gradients run wherever a device is free, so
they are placed anew each time. Source: arXiv:2405.15362, section 3, and its public code, which
does this in slots of equal length.
"""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.core.shape import Shape
from penstock.schedules.generators.building_blocks import (
    LENGTHS,
    Block,
    Pass,
    Slots,
    producers,
    squeeze,
)

Row = dict[Pass, list[int]]
"""Starts of a device's passes."""
WeightUrgency = Callable[[int, int], Any]
"""Which weight gradient runs first, by the slot of its input gradient and by its stage."""
Level = NDArray[np.int64]
Visit = tuple[int, int, int, int, Pass]
"""Slot, device, place among the passes of the device, microbatch, and the pass itself."""

SOME_WEIGHT: Pass = ("W", -1)
"""A weight gradient of whichever stage: the n-th belongs to the n-th input gradient."""
WARM_UP, STABLE, COOL_DOWN = range(3)


def reorder(shape: Shape, block: Block) -> Slots:
    """The block repeated, with its ends filled: first with weight gradients in place, then without.

    The block has no weight gradients. In the end those of later stages run first.
    """
    wait = producers(shape, block)
    slots = block.repeat(shape.microbatches)
    for row in slots:
        weights = with_weights(row, oldest)
        row[SOME_WEIGHT] = [slot for slot, _ in _of_kind(weights, "W")]
    _fill(slots, wait, (WARM_UP, COOL_DOWN))
    slots = squeeze(shape, [_labelled(row) for row in slots])
    slots = [without_weights(row) for row in slots]
    _fill(slots, wait, (COOL_DOWN,))
    slots = squeeze(shape, [with_weights(row, oldest) for row in slots])
    return [with_weights(without_weights(row), latest_stage) for row in slots]


def pull(shape: Shape, block: Block) -> Slots:
    """The block repeated, with every pass as early as the peak allows."""
    slots = block.repeat(shape.microbatches)
    _fill(slots, producers(shape, block), (WARM_UP, STABLE, COOL_DOWN))
    return slots


def oldest(slot: int, stage: int) -> int:
    """Weight gradients in the order of their input gradients."""
    return slot


def latest_stage(slot: int, stage: int) -> tuple[int, int]:
    """Weight gradients of the later stage first."""
    return -stage, slot


def without_weights(row: Row) -> Row:
    return {each: times for each, times in row.items() if each[0] != "W"}


def with_weights(row: Row, urgency: WeightUrgency) -> Row:
    """Every weight gradient in a free slot, as soon as its input gradient has run."""
    placed = {**row, **{("W", stage): [] for kind, stage in row if kind == "I"}}
    busy = {slot: each for each, times in row.items() for slot in times}
    due: list[Any] = []
    slot, last = 0, max(busy)
    while slot <= last or due:
        kind, stage = busy.get(slot, ("", 0))
        if kind == "I":
            heappush(due, (urgency(slot, stage), stage))
        elif not kind and due:
            placed["W", heappop(due)[1]].append(slot)
        slot += 1
    return placed


def _of_kind(row: Row, kind: str) -> list[tuple[int, int]]:
    """Slot and stage of all passes of a kind, in the order of time."""
    mine = ((stage, times) for (other, stage), times in row.items() if other == kind)
    return sorted((slot, stage) for stage, times in mine for slot in times)


def _labelled(row: Row) -> Row:
    """The row with every weight gradient of some stage given to the input gradient it follows."""
    labelled = {each: times for each, times in row.items() if each != SOME_WEIGHT}
    for (_, stage), slot in zip(_of_kind(row, "I"), row[SOME_WEIGHT]):
        labelled.setdefault(("W", stage), []).append(slot)
    return labelled


def _fill(slots: Slots, wait: dict[Pass, list[Pass]], phases: tuple[int, ...]) -> None:
    """Move the passes of some phases to the earliest slot that is free and takes no more memory."""
    home = {each: row for row in slots for each in row if each != SOME_WEIGHT}
    levels = [_level(row) for row in slots]
    most = max(int(level.max()) for level in levels)
    taken: list[set[int]] = [set() for _ in slots]
    last = len(slots[0]["F", 0]) - 1
    fed = phase = WARM_UP
    for slot, device, _, mb, each in _visits(slots):
        row, length = slots[device], LENGTHS[each[0]]
        if each in (("I", 0), ("B", 0)) and phase == WARM_UP:
            phase = max(STABLE, fed)
        if phase in phases:
            ready = [home[other][other][mb] + LENGTHS[other[0]] for other in wait.get(each, ())]
            reach = range(max([_behind(row, each, mb), *ready]), slot - length + 1)
            free = (at for at in reach if taken[device].isdisjoint(range(at, at + length)))
            row[each][mb] = _move(row, each, mb, free, levels[device], most)
        if each == ("F", 0) and mb == last:
            fed = COOL_DOWN
            phase = COOL_DOWN if phase == STABLE else phase
        taken[device].update(range(row[each][mb], row[each][mb] + length))


def _visits(slots: Slots) -> list[Visit]:
    """Every pass of every microbatch, in the order of time."""
    return sorted(
        (slot, device, turn, mb, each)
        for device, row in enumerate(slots)
        for turn, (each, times) in enumerate(row.items())
        for mb, slot in enumerate(times)
    )


def _behind(row: Row, each: Pass, mb: int) -> int:
    """The first slot behind what a pass follows on its own device."""
    before = row[each][mb - 1] + LENGTHS[each[0]] if mb else 0
    return max(before, _of_kind(row, "I")[mb][0] + 1) if each == SOME_WEIGHT else before


def _move(row: Row, each: Pass, mb: int, free: Iterable[int], level: Level, most: int) -> int:
    """The first free slot to which a pass can move without raising the peak, or where it is."""
    now, release = row[each][mb], LENGTHS[each[0]] - 1
    for slot in free:
        if _weights_are_free(row):
            row[each][mb] = slot
            if _level(row).max() <= most:
                return slot
        elif each[0] != "F":
            level[slot + release : now + release] -= each[0] in "WB"
            return slot
        elif level[slot:now].max() < most:
            level[slot:now] += 1
            return slot
    return now


def _weights_are_free(row: Row) -> bool:
    """Whether the weight gradients of a row have no slots, and fill what the others leave."""
    return SOME_WEIGHT not in row and any(kind == "I" for kind, _ in row)


def _level(row: Row) -> Level:
    """Activations of a stage that a device holds in every slot."""
    length = 2 + max(times[-1] for times in row.values())
    taken, inputs, busy, released = np.zeros((4, length), np.int64)
    for (kind, _), times in row.items():
        busy[times] = 1
        if kind == "F":
            taken[times] = 1
        elif kind == "I":
            inputs[times] = 1
        else:
            released[np.array(times) + LENGTHS[kind] - 1] = 1
    if not _weights_are_free(row):
        return np.cumsum(taken - released)
    # A queue served by free slots: it holds what came, less the service that was of use.
    queue = np.cumsum(inputs - (1 - busy))
    due = queue - np.minimum(np.minimum.accumulate(queue), 0)
    level: Level = np.cumsum(taken - inputs) + due
    return level

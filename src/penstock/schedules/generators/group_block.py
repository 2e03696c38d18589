"""The block that generalised interleaved schedules repeat: when each op of a group has its slot.

A group of microbatches goes through all stages of a device in turn. Forwards step from device to
device by one slot, input gradients by two, each followed by its weight gradient; the block repeats
every 3 g v slots, for g microbatches on v stages. Small groups leave room between the stages of a
microbatch, so that the first device never waits for the last one. Source: arXiv:2503.01328,
section 3, with the offsets of its public code.
"""

from math import gcd

from penstock.core.shape import Shape
from penstock.schedules.generators.placements import (
    looped_placement,
    stages_of,
    stages_per_device,
)
from penstock.schedules.generators.streams import PlainOp

OpSlots = list[tuple[int, PlainOp]]
"""Ops of one device with their slots, in order."""


def block_slots(shape: Shape, group: int) -> list[OpSlots]:
    """The slots of every op, for groups of a size; one list for each device."""
    of_device = stages_of(looped_placement(shape))
    return [_device_slots(shape, group, r, stages) for r, stages in enumerate(of_device)]


def _device_slots(shape: Shape, group: int, r: int, stages: tuple[int, ...]) -> OpSlots:
    p, v = shape.devices, len(stages)
    shift = min(r, _late(shape, group))
    last = _turn(shape, group, v - 1) + r
    slots: OpSlots = []
    for mb in range(shape.microbatches):
        number, place = divmod(mb, group)
        base = 3 * (number * group * v + place) + shift
        for c in range(v):
            forward = base + _turn(shape, group, c) + r
            backward = base + last + 3 * (p - 1 - r) + 1 + _turn(shape, group, c)
            slots.append((forward, ("F", stages[c], mb, 0)))
            stage = stages[v - 1 - c]
            slots += [(backward, ("I", stage, mb, 0)), (backward + 1, ("W", stage, mb, 0))]
    return sorted(slots)


def _turn(shape: Shape, group: int, c: int) -> int:
    """How long after its first stage a group turns to the c-th stage of the first device.

    A group smaller than half the devices takes several turns; they must not fall together.
    """
    v = stages_per_device(shape)
    turns = -(-least_group(shape.devices) // group)
    return 3 * group * (turns * c + c // (v // gcd(v, turns)))


def least_group(devices: int) -> int:
    """The smallest group that keeps the first device from waiting for the last one."""
    return -(-devices // 2)


def _late(shape: Shape, group: int) -> int:
    """How much later the last device may start without keeping the first one waiting.

    It moves the slack between devices from the gradients to the forwards.
    """
    v = stages_per_device(shape)
    turns = [_turn(shape, group, c) - _turn(shape, group, c - 1) for c in range(1, v)]
    return min(turns, default=2 * shape.devices - 1) - shape.devices if shape.devices > 1 else 0

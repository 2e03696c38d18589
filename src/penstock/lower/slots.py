"""How many receive slots a channel needs, and which transfer uses which.

A receive is posted into a slot before its data is needed; the slot is free again when the last op
that reads it has ended. Transfers arrive in the order they are sent, which need not be the order
in which they are read, so one slot per channel can be too few: a transfer that is read early may
have to wait behind one that is read late.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.groups import groups_of
from penstock.core.kernel import kernel
from penstock.core.program import Channel
from penstock.core.rules import NAMES
from penstock.core.schedule import Schedule
from penstock.core.table import Ints
from penstock.core.transfers import Moves
from penstock.errors import ShapeError


class ChannelNeeds(NamedTuple):
    """The channels of a schedule and what each needs."""

    channels: tuple[Channel, ...]
    channel: Ints
    """The channel of each transfer."""
    needed: NDArray[np.int64]
    """Fewest slots of each channel with which nothing deadlocks."""
    by_send: NDArray[np.int64]
    """Transfers by channel, in the order in which they are sent."""
    first: NDArray[np.int64]
    """Place of the first one of each channel in that order, and their number."""


class Plan(NamedTuple):
    """Slots of every channel and transfer."""

    channels: tuple[Channel, ...]
    channel: Ints
    needed: Ints
    """Fewest slots of each channel with which nothing deadlocks."""
    slots: Ints
    slot: Ints
    posted_after: Ints
    """Row whose end frees the slot of each transfer; -1 for those posted before the first op."""


def plan_slots(
    schedule: Schedule, moves: Moves, wanted: Mapping[Channel, int] | None = None
) -> Plan:
    """Give each transfer a slot; by default every channel has as few as it needs."""
    channels, channel, needed, by_send, first = needs_of_channels(schedule, moves)
    by_read = np.lexsort((moves.last_reader, channel))
    slots = _wanted(channels, needed, wanted or {})
    slot, posted_after = np.zeros(len(channel), np.int32), np.full(len(channel), -1, np.int32)
    _assign(len(channel), first, by_send, by_read, slots, moves.last_reader, slot, posted_after)
    return Plan(
        channels, channel, needed.astype(np.int32), slots.astype(np.int32), slot, posted_after
    )


def needs_of_channels(schedule: Schedule, moves: Moves) -> ChannelNeeds:
    """How many slots each channel needs so that nothing deadlocks."""
    channels, channel = _channels(schedule, moves)
    by_send = np.argsort(channel.astype(np.uint16), kind="stable")
    first = np.searchsorted(channel[by_send], np.arange(len(channels) + 1)).astype(np.int64)
    turn = np.empty(len(channel), np.int64)
    turn[by_send] = np.arange(len(channel)) - first[channel[by_send]]
    together = np.lexsort((-turn, _read_at(schedule, moves), channel))
    read_turn = np.arange(len(channel)) - first[channel[together]]
    needed = np.ones(len(channels), np.int64)
    np.maximum.at(needed, channel[together], turn[together] - read_turn + 1)
    return ChannelNeeds(channels, channel, needed, by_send, first)


def _read_at(schedule: Schedule, moves: Moves) -> Ints:
    """Row at which each transfer is last read; braided ops read together, at their first row."""
    rows, of_row = groups_of(schedule).rows, groups_of(schedule).of_row
    at = np.arange(len(schedule.table), dtype=np.int32)
    if len(rows):
        lane = schedule.table.lane
        head = np.diff(of_row[rows], prepend=-1) != 0
        head |= np.diff(lane[rows], prepend=-1) != 0
        at[rows] = rows[np.maximum.accumulate(np.where(head, np.arange(len(rows)), 0))]
    return at[moves.last_reader]


def _channels(schedule: Schedule, moves: Moves) -> tuple[tuple[Channel, ...], Ints]:
    """The channels, and the channel of each transfer."""
    device, count = schedule.table.device, schedule.shape.devices
    key = device[moves.writer].astype(np.int64) * count + device[moves.reader]
    key = key * len(NAMES) + moves.buffer
    present = np.unique(key)
    found = []
    for value in present:
        edge, buffer = divmod(int(value), len(NAMES))
        found.append(Channel(*divmod(edge, count), NAMES[buffer]))
    return tuple(found), np.searchsorted(present, key).astype(np.int32)


def _wanted(channels: tuple[Channel, ...], needed: Any, wanted: Mapping[Channel, int]) -> Any:
    """Slots as asked for, refused where they would deadlock."""
    slots = needed.copy()
    for number, channel in enumerate(channels):
        slots[number] = wanted.get(channel, needed[number])
        if slots[number] < needed[number]:
            raise ShapeError(
                f"channel {channel} with {slots[number]} slot(s) deadlocks: {needed[number]} are "
                "needed, because transfers are not read in the order they are sent",
                hint=f"give it {needed[number]} slots or more",
            )
    return slots


@kernel
def _assign(
    first: Any, by_send: Any, by_read: Any, slots: Any, last_reader: Any,
    slot: Any, posted_after: Any,
) -> None:  # fmt: skip
    """The t-th transfer of a channel with n slots takes the slot that is freed as (t - n)-th."""
    for channel in range(len(slots)):
        for place in range(first[channel], first[channel + 1]):
            turn = place - first[channel]
            move = by_send[place]
            if turn < slots[channel]:
                slot[move] = turn
            else:
                freed = by_read[place - slots[channel]]
                slot[move] = slot[freed]
                posted_after[move] = last_reader[freed]

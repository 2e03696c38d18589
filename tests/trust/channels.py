"""The game with real channels: outputs and gradients must be carried, into slots that are few.

One channel for each directed edge between devices and each payload (`x` outputs, `g` gradients,
`skip` and `dskip` the same along skip edges).
What a device produces waits for its channel, in the order in which it was produced, and moves when
the receiver has a free slot; the slot is free again when the work that reads it is done. Producing
never waits. With too few slots the receiver holds what it cannot use yet, and what it needs cannot
come: `smallest_slots` finds how many are enough, by trying.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .board import Board, Play, run
from .world import BACKWARD, FORWARD, Work

Channel = tuple[int, int, str]
"""From device, to device, payload."""
Parcel = tuple[Work, Work]
"""Who produced it, who reads it."""


def parcels(play: Play) -> dict[Channel, list[Parcel]]:
    """Everything each channel carries, in the order of production."""
    found: dict[Channel, list[Parcel]] = defaultdict(list)
    for (device, _), lane in play.lanes.items():
        for work in lane:
            for payload, reader in _readers(play, work):
                target = play.places[reader][0][0]
                if target != device:
                    found[device, target, payload].append((work, reader))
    return dict(found)


def _readers(play: Play, work: Work) -> list[tuple[str, Work]]:
    """Work that needs the output or the input gradient of `work`, and what it comes as."""
    kind, stage, mb, slice = work
    skips = play.world.skips
    if kind in FORWARD:
        kinds, stages = FORWARD, [("x", stage + 1), *(("skip", t) for s, t in skips if s == stage)]
    elif kind in BACKWARD:
        kinds, stages = (
            BACKWARD,
            [("g", stage - 1), *(("dskip", s) for s, t in skips if t == stage)],
        )
    else:
        return []
    readers = ((payload, (kind, at, mb, slice)) for payload, at in stages for kind in kinds)
    return [(payload, reader) for payload, reader in readers if reader in play.places]


@dataclass
class ChannelBoard(Board):
    """A position of the game, and how many parcels each channel has carried."""

    slots: Mapping[Channel, int] = field(default_factory=dict)
    carried: dict[Channel, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.carried = self.carried or dict.fromkeys(self.parcels, 0)

    @cached_property
    def parcels(self) -> dict[Channel, list[Parcel]]:
        return parcels(self.play)

    def copy(self) -> "ChannelBoard":
        at, carried = dict(self.at), dict(self.carried)
        return ChannelBoard(
            self.play, at, set(self.done), set(self.table), slots=self.slots, carried=carried
        )

    def key(self) -> Any:
        return (*self.at.values(), *self.carried.values())

    def moves(self) -> Iterable[Any]:
        """Work whose parcels have come, and channels that can carry their next parcel."""
        missing = {
            reader
            for channel, all_parcels in self.parcels.items()
            for _, reader in all_parcels[self.carried[channel] :]
        }
        works = [bundle for bundle in super().moves() if missing.isdisjoint(bundle)]
        return [*works, *(channel for channel in self.parcels if self._can_carry(channel))]

    def _can_carry(self, channel: Channel) -> bool:
        count = self.carried[channel]
        if count == len(self.parcels[channel]):
            return False
        held = sum(reader not in self.done for _, reader in self.parcels[channel][:count])
        producer, _ = self.parcels[channel][count]
        return producer in self.done and held < self.slots[channel]

    def make(self, move: Any) -> None:
        if move in self.parcels:
            self.carried[move] += 1
        else:
            super().make(move)


def gets_stuck(play: Play, slots: Mapping[Channel, int]) -> bool:
    """Whether the game ends before its end with this many slots on each channel."""
    return bool(run(ChannelBoard(play, slots=slots)).heads())


def smallest_slots(play: Play) -> dict[Channel, int]:
    """For each channel the fewest slots with which nothing gets stuck, others being plentiful."""
    plenty = {channel: len(carried) for channel, carried in parcels(play).items()}
    return {
        channel: next(
            count
            for count in range(1, plenty[channel] + 1)
            if not gets_stuck(play, {**plenty, channel: count})
        )
        for channel in plenty
    }

"""Recompute that runs ahead: whenever a device has nothing urgent to do, it recomputes.

An R right before its backward lengthens some slots of the grid (schedules/generators/grid.py), and
devices wait for each other. But an R needs nothing from other devices: it can run as soon as its
forward is done, wherever the device would idle, if there is memory for what it makes. Here every
device, when it is free, starts the op that the grid would start first among those that are ready
and have room;
an R only where there is no other.

Room. Each device holds at most `cap` activations. On its way through a device a microbatch takes
memory v times: forwards of the kept stages, then recomputes from the deepest to the shallowest. An
op starts only if one place is left for each of those that follow it, an R that runs ahead (its
gradient is not there) only if a place is left for all the others. Without that, young microbatches
could fill a device and leave no place for the next step of an old one.

No deadlock: on every stage microbatches go in order, so whoever holds memory behind the oldest one
has left the places that the oldest one still needs.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.schedules.generators.grid import SlotGrid
from penstock.schedules.generators.streams import PlainOp

LATEST = 2**61


class Choice(NamedTuple):
    """An op that a device may start next."""

    ready: int
    """When it may start, as far as other devices are concerned."""
    filler: bool
    """Whether it is for idle time only."""
    urgency: int
    kind: str
    stage: int


class Lookahead:
    """Lanes under construction; `recomputed` counts a device's recomputed stages, shallowest first,
    and `cap` the activations that it may hold."""

    def __init__(self, grid: SlotGrid, microbatches: int, recomputed: int, cap: int) -> None:
        self.grid, self.microbatches = grid, microbatches
        self.recomputed, self.cap = recomputed, cap
        self.lanes: list[list[PlainOp]] = [[] for _ in range(grid.devices)]
        self.held = [0] * grid.devices
        self.free = [0] * grid.devices
        """When each device has done what it has started."""
        self.wake = [0] * grid.devices
        """When each device has to decide next."""
        stages = range(grid.devices * grid.chunks)
        self.ends: dict[str, list[list[int]]] = {kind: [[] for _ in stages] for kind in "FRB"}
        """When ops end, by kind, stage and microbatch."""

    def run(self) -> list[list[PlainOp]]:
        """Let the device that wakes first decide, until nobody has anything left to do."""
        while (now := min(self.wake)) < LATEST:
            device = self.wake.index(now)
            choices = list(self._choices(device))
            ready = [choice for choice in choices if choice.ready <= now]
            if ready:
                first = min(ready, key=lambda choice: choice[1:])
                self._place(first, device, now)
            else:
                self.wake[device] = min((choice.ready for choice in choices), default=LATEST)
        return self.lanes

    def _choices(self, device: int) -> Iterator[Choice]:
        """The next op of each kind on each stage, where it is known when it can start."""
        for place in range(self.grid.chunks):
            stage = place * self.grid.devices + device
            room = self.cap - self.held[device]
            yield from self._forward(stage, place, room)
            yield from self._backward(stage, place)
            if place < self.recomputed:
                yield from self._recompute(stage, place, room)

    def _forward(self, stage: int, place: int, room: int) -> Iterator[Choice]:
        mb = len(self.ends["F"][stage])
        kept = place >= self.recomputed
        following = self.grid.chunks - 1 - place + self.recomputed if kept else 0
        ready = self._arrival("F", stage - 1, mb) if stage else 0
        if mb < self.microbatches and ready < LATEST and room > following:
            yield Choice(ready, False, self.grid.start("F", stage, mb), "F", stage)

    def _backward(self, stage: int, place: int) -> Iterator[Choice]:
        mb = len(self.ends["B"][stage])
        source = "R" if place < self.recomputed else "F"
        last = stage == len(self.ends["B"]) - 1
        ready = 0 if last else self._arrival("B", stage + 1, mb)
        if mb < len(self.ends[source][stage]) and ready < LATEST:
            yield Choice(ready, False, self.grid.start("B", stage, mb), "B", stage)

    def _recompute(self, stage: int, place: int, room: int) -> Iterator[Choice]:
        mb = len(self.ends["R"][stage])
        due = self._arrival("B", stage + 1, mb) < LATEST
        deepest = stage + (self.grid.chunks - 1 - place) * self.grid.devices
        ahead = mb < len(self.ends["F"][deepest]) and room >= self.grid.chunks
        if mb < len(self.ends["F"][stage]) and (ahead or (due and room > place)):
            yield Choice(0, True, self.grid.start("B", stage, mb), "R", stage)

    def _arrival(self, kind: str, stage: int, mb: int) -> int:
        """When what an op writes is on the device of the next stage."""
        ends = self.ends[kind][stage]
        hop = self.grid.hop if self.grid.devices > 1 else 0
        return ends[mb] + hop if mb < len(ends) else LATEST

    def _place(self, choice: Choice, device: int, now: int) -> None:
        """Start the op, and wake those who can go on when it ends."""
        kind, stage = choice.kind, choice.stage
        kept = stage >= self.recomputed * self.grid.devices
        mb = len(self.ends[kind][stage])
        end = now + (self.grid.B if kind == "B" else self.grid.F)
        self.ends[kind][stage].append(end)
        self.lanes[device].append(("N" if kind == "F" and not kept else kind, stage, mb, 0))
        self.held[device] += {"F": int(kept), "R": 1, "B": -1}[kind]
        self.free[device] = self.wake[device] = end
        target = (stage + {"F": 1, "R": 0, "B": -1}[kind]) % self.grid.devices
        arrival = max(self.free[target], end + self.grid.hop)
        if target != device:
            self.wake[target] = min(self.wake[target], arrival)

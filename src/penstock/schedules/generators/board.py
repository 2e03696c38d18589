"""A board on which ops are placed one by one, each as early as its lane and its producer allow.

Constructors for measured times choose every op by looking at clocks: when would this forward be
ready, how long does a device idle, does the memory suffice. The board keeps those, in whole ticks,
so that no choice hangs on a rounding error. Forwards go up the stages and input gradients down;
weight gradients wait in a queue until the device has time for them.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from penstock.schedules._registry import Case
from penstock.schedules.generators.streams import PlainOp

Ends = list[list[int]]
"""When ops end, by stage and microbatch."""


@dataclass(frozen=True)
class Budget:
    """Times and sizes of one stage's ops and the limit of a device, as whole numbers."""

    F: int
    I: int  # noqa: E741 - the letter of the op
    W: int
    hop: int
    act: int
    stash: int
    limit: int

    @classmethod
    def of(cls, case: Case, limit: Fraction) -> "Budget":
        """The prices of a case, where a device may hold `limit`."""
        times = _whole(case.F / case.v, case.I / case.v, case.W / case.v, case.hop)
        return cls(*times, *_whole(case.act / case.v, case.stash / case.v, limit))

    @property
    def unit(self) -> int:
        """The most that one microbatch ever holds on a stage: what a forward needs room for."""
        return max(self.act, self.stash)


def _whole(*values: Fraction) -> list[int]:
    scale = lcm(*(value.denominator for value in values))
    return [int(value * scale) for value in values]


class Board:
    """Lanes under construction, with the clock, the memory and the idle time of every device."""

    def __init__(self, home: Sequence[int], microbatches: int, budget: Budget) -> None:
        devices = max(home) + 1
        self.home = home
        """Device of each stage."""
        self.microbatches = microbatches
        self.budget = budget
        self.lanes: list[list[PlainOp]] = [[] for _ in range(devices)]
        self.clock = [0] * devices
        self.held = [0] * devices
        self.idle = [0] * devices
        """Time a device has waited since its first op."""
        self.worst = 0
        """The longest of these waits: all devices work equally long, so it decides the span."""
        self.due: list[deque[tuple[int, int]]] = [deque() for _ in range(devices)]
        """Stage and microbatch of the weight gradients that may run, oldest first."""
        self.forward: Ends = [[] for _ in home]
        self.backward: Ends = [[] for _ in home]
        """Of input gradients."""

    def forwards(self, stage: int) -> int:
        """How many the stage has run."""
        return len(self.forward[stage])

    def forwards_left(self, stage: int) -> int:
        return self.microbatches - len(self.forward[stage])

    def forward_arrival(self, stage: int) -> int:
        """When the input of the stage's next forward is there."""
        return self._arrival(self.forward, stage, stage - 1) if stage else 0

    def backward_arrival(self, stage: int) -> int:
        """When the gradient for the stage's next input gradient is there."""
        last = len(self.home) - 1
        return self._arrival(self.backward, stage, stage + 1) if stage < last else 0

    def _arrival(self, ends: Ends, stage: int, producer: int) -> int:
        hop = self.budget.hop if self.home[producer] != self.home[stage] else 0
        return ends[producer][len(ends[stage])] + hop

    def place_forward(self, stage: int) -> None:
        """Append the stage's next forward."""
        arrival, ends = self.forward_arrival(stage), self.forward[stage]
        ends.append(self._append(("F", stage, len(ends), 0), arrival, self.budget.F))
        self.held[self.home[stage]] += self.budget.act

    def place_backward(self, stage: int) -> None:
        """Append the stage's next input gradient; its weight gradient is due from then on."""
        arrival, ends, device = self.backward_arrival(stage), self.backward[stage], self.home[stage]
        self.due[device].append((stage, len(ends)))
        ends.append(self._append(("I", stage, len(ends), 0), arrival, self.budget.I))
        self.held[device] += self.budget.stash - self.budget.act

    def place_weight(self, device: int) -> None:
        """Append the weight gradient that has been due longest."""
        stage, mb = self.due[device].popleft()
        self._append(("W", stage, mb, 0), 0, self.budget.W)
        self.held[device] -= self.budget.stash

    def _append(self, op: PlainOp, arrival: int, time: int) -> int:
        """Run the op, and say when it ends."""
        device = self.home[op[1]]
        wait = max(0, arrival - self.clock[device])
        if self.lanes[device]:
            self.idle[device] += wait
            self.worst = max(self.worst, self.idle[device])
        self.clock[device] += wait + time
        self.lanes[device].append(op)
        return self.clock[device]

    def room_for_forward(self, device: int) -> None:
        """Run weight gradients until a forward fits into the memory."""
        self._room(device, self.budget.unit)

    def room_for_backward(self, device: int) -> None:
        """Run weight gradients until an input gradient fits into the memory."""
        self._room(device, self.budget.stash - self.budget.act)

    def _room(self, device: int, growth: int) -> None:
        while self.held[device] + growth > self.budget.limit:
            self.place_weight(device)

    def fill(self, device: int, arrival: int) -> int:
        """Run the weight gradients that end before something arrives; the gap that remains."""
        while self.due[device] and self.clock[device] + self.budget.W <= arrival:
            self.place_weight(device)
        return arrival - self.clock[device]

    def flush(self, device: int) -> None:
        """Run all weight gradients that are due."""
        while self.due[device]:
            self.place_weight(device)

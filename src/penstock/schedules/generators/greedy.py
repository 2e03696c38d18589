"""Greedy orders: whenever a device is free, it runs the most urgent op that is ready.

Many papers give no table but a rule: run a backward as soon as one is ready, admit at most so many
microbatches. Three things say such a rule.

- Home: the device of each stage (see `placements`).
- Urgency: a key of an op; of those that are ready the least goes first.
- Admission: how many units a stage may have forward and not back. It bounds the memory.

    def lanes(shape):
        return greedy_lanes(
            shape,
            looped_placement(shape),
            urgency=lambda op: (op.kind == "F", op.mb),
            admission=lambda stage: shape.devices - stage,
        )

is 1F1B. What an op waits for comes from the meaning table, so slices, split backwards and skip
edges need no word here. Time is counted in the units of a paper's drawing, or as it is given.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from penstock.core.graph import reads_of
from penstock.core.meaning import MEANING, Meaning
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules.generators.placements import stages_of
from penstock.schedules.generators.streams import forward_units

Urgency = Callable[[Op], Any]
"""The key of an op; it must differ between ops of a device, or leave ties to their numbers."""
Admission = Callable[[int], int]
"""How many units a stage may have forward and not back."""

WHOLE_TIMES: Mapping[str, int] = {"F": 1, "B": 2}
SPLIT_TIMES: Mapping[str, int] = {"F": 1, "I": 1, "W": 1}
"""The kinds of an order, and what they take in most drawings."""


def greedy_lanes(
    shape: Shape,
    home: Sequence[int],
    urgency: Urgency,
    admission: Admission | None = None,
    times: Mapping[str, int] = WHOLE_TIMES,
) -> list[list[Op]]:
    """The order in which each device comes to run the kinds in `times`, on its stages."""
    work = _Work(shape, home, urgency, times)
    limits = [admission(stage) if admission else shape.units for stage in range(shape.stages)]
    return _run(work, limits)


class _Work:
    """All ops by number, with what each waits for and how urgent it is."""

    def __init__(
        self, shape: Shape, home: Sequence[int], urgency: Urgency, times: Mapping[str, int]
    ) -> None:
        lanes = [
            [
                Op(kind, stage, mb, part)
                for stage in stages
                for mb, part in forward_units(shape)
                for kind in times
                if not (kind == "W" and stage in shape.weightless)
            ]
            for stages in stages_of(home)
        ]
        draft = Schedule.of("greedy", shape, lanes)
        self.ops = draft.table.ops()
        self.device: list[int] = draft.table.device.tolist()
        self.times = [times[op.kind] for op in self.ops]
        self.keys = [(urgency(op), number) for number, op in enumerate(self.ops)]
        reads = reads_of(draft)
        self.readers: list[list[int]] = [[] for _ in self.ops]
        self.missing = [0] * len(self.ops)
        for reader, writer in zip(reads.reader.tolist(), reads.writer.tolist()):
            if writer >= 0:  # what nobody writes is there from the start
                self.readers[writer].append(reader)
                self.missing[reader] += 1


def _touches_activation(refs: str) -> frozenset[str]:
    """Kinds that write an activation, or that read it."""

    def named(meaning: Meaning) -> bool:
        return any(ref.buffer == "act" for ref in getattr(meaning, refs))

    return frozenset(kind for kind, meaning in MEANING.items() if named(meaning))


_OPENING, _CLOSING = _touches_activation("writes"), _touches_activation("reads")


class _Devices:
    """What is ready on each device, and what its stages may still admit."""

    def __init__(self, work: _Work, limits: list[int]) -> None:
        self.work, self.room = work, limits
        self.ready: list[list[Any]] = [[] for _ in range(max(work.device) + 1)]
        self.refused: list[list[Any]] = [[] for _ in limits]
        """Forwards of a stage that has no room for them."""
        for number, missing in enumerate(work.missing):
            if not missing:
                self.offer(number)

    def offer(self, number: int) -> None:
        """An op has all it waits for."""
        heappush(self.ready[self.work.device[number]], self.work.keys[number])

    def choose(self, device: int) -> int | None:
        """The most urgent op that is ready and admitted."""
        ready = self.ready[device]
        while ready:
            key = heappop(ready)
            op = self.work.ops[key[1]]
            if op.kind not in _OPENING:
                return int(key[1])
            if self.room[op.stage] > 0:
                self.room[op.stage] -= 1
                return int(key[1])
            heappush(self.refused[op.stage], key)
        return None

    def finish(self, number: int) -> None:
        """An op has ended: others may be ready, and its stage may have room again."""
        op = self.work.ops[number]
        if op.kind in _CLOSING:
            self.room[op.stage] += 1
            if self.refused[op.stage]:
                self.offer(heappop(self.refused[op.stage])[1])
        for reader in self.work.readers[number]:
            self.work.missing[reader] -= 1
            if not self.work.missing[reader]:
                self.offer(reader)


def _run(work: _Work, limits: list[int]) -> list[list[Op]]:
    """Walk through time; at each end of an op the devices that are free choose anew."""
    devices = _Devices(work, limits)
    lanes: list[list[Op]] = [[] for _ in devices.ready]
    running: list[tuple[int, int]] = []
    free, now = set(range(len(lanes))), 0
    while True:
        for device in sorted(free):
            number = devices.choose(device)
            if number is not None:
                lanes[device].append(work.ops[number])
                heappush(running, (now + work.times[number], number))
                free.remove(device)
        if not running:
            return _complete(work, devices, lanes)
        now = running[0][0]
        while running and running[0][0] == now:
            _, number = heappop(running)
            free.add(work.device[number])
            devices.finish(number)


def _complete(work: _Work, devices: _Devices, lanes: list[list[Op]]) -> list[list[Op]]:
    """The lanes, or an error where the admission was too strict to go on."""
    for stage, refused in enumerate(devices.refused):
        if refused:
            raise ShapeError(
                f"a greedy order stops: {work.ops[refused[0][1]]} waits for room on stage {stage}, "
                "and nothing that is admitted can go back",
                hint="let the stage admit more units: at least the slices of a microbatch",
            )
    return lanes

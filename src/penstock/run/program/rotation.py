"""Which buffer each op of a sharded schedule uses, as the order of its collectives says.

Stages of a device whose weights are gathered use a few buffers in turn, and so do their gradients.
A schedule names no buffers. It says what a gather waits for, which is the last op that used the
buffer it overwrites, and which op waits for a reduction, which is the first one of another stage in
the same buffer. A gather that waits for nothing fills a buffer of its own.

    compute      0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1
    collective   0G0 1G0 0G1 1Z0 0Z0               1G0 after 0F1: both use weight buffer 0
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from penstock.core.ops import Op, home_number
from penstock.core.schedule import Schedule
from penstock.errors import RunError
from penstock.transform.buffer_stays import ADDING, USING

HomeNumbers = Mapping[Op, int]
"""Ops of a lane, and the number of the stage or shard whose weights each of them uses."""

Earlier = Mapping[Op, Sequence[Op]]
"""What ops wait for because the schedule says so."""


@dataclass(frozen=True, eq=False)
class Rotation:
    """The buffers of one device by op, for each of the two buffers of a stage that rotate."""

    weight: Mapping[Op, int]
    """Of gathers, and of ops that read weights; empty where nothing is gathered."""
    dw: Mapping[Op, int]
    """Of ops that add to the gradient, and of reductions; empty where nothing is gathered."""
    stages: int = 0
    """How many there are; shards of the vocabulary have the numbers behind them."""

    def of(self, name: str) -> Mapping[Op, int]:
        """The buffers of ops that use the table's buffer of that name."""
        return {"weight": self.weight, "dw": self.dw}.get(name, {})

    def users(self, name: str) -> tuple[frozenset[int], ...]:
        """The stages that each buffer of that name takes in turn."""
        found: dict[int, set[int]] = defaultdict(set)
        for stage, buffer in self.uses(name):
            found[buffer].add(stage)
        return tuple(frozenset(found[buffer]) for buffer in sorted(found))

    @cached_property
    def staying(self) -> frozenset[int]:
        """Stages that have a gradient buffer to themselves and are reduced once: what they own of
        the sum can stay where it was added up."""
        alone = {stage for stages in self.users("dw") if len(stages) == 1 for stage in stages}
        reduced = Counter(op.stage for op in self.dw if op.kind == "Z")
        return frozenset(stage for stage in alone if reduced[stage] == 1)

    def uses(self, name: str) -> set[tuple[int, int]]:
        """Stage and buffer of everything that is ever held."""
        return {(home_number(op, self.stages), buffer) for op, buffer in self.of(name).items()}


def in_buffer(name: str, buffer: int) -> str:
    """What a stage's weights or gradients in one of the buffers are called among the places."""
    return f"{name} in buffer {buffer}"


def rotation_of(schedule: Schedule, device: int) -> Rotation:
    """The buffers of a device."""
    if "G" not in schedule.table.kinds:
        return Rotation({}, {})
    lane, collective = schedule.lane(device), schedule.lane(device, "collective")
    earlier = schedule.derive("earlier ops", _earlier)
    gathers, reductions = ([op for op in collective if op.kind == kind] for kind in "GZ")
    numbers = {op: home_number(op, schedule.shape.stages) for op in lane}
    heavy = {op: n for op, n in numbers.items() if n not in schedule.shape.weightless}
    return Rotation(
        _weight_buffers(heavy, gathers, earlier),
        _gradient_buffers(heavy, reductions, earlier),
        schedule.shape.stages,
    )


def _earlier(schedule: Schedule) -> Earlier:
    found: dict[Op, list[Op]] = {}
    for op, awaited in schedule.after:
        found.setdefault(op, []).append(awaited)
    return found


def _weight_buffers(lane: HomeNumbers, gathers: Sequence[Op], earlier: Earlier) -> dict[Op, int]:
    serving = _serving(lane, gathers, earlier)
    found: dict[Op, int] = {}
    free = count()
    for gather in gathers:
        before = next((serving[op] for op in earlier.get(gather, ()) if op in serving), None)
        found[gather] = next(free) if before is None else found[before]
    return found | {op: found[gather] for op, gather in serving.items()}


def _serving(lane: HomeNumbers, gathers: Sequence[Op], earlier: Earlier) -> dict[Op, Op]:
    """For each op that reads weights the gather that has brought them."""
    newest = {gather.stage: gather for gather in reversed(gathers)}
    found: dict[Op, Op] = {}
    for op, number in lane.items():
        if op.kind in USING:
            awaited = (
                each for each in earlier.get(op, ()) if each.kind == "G" and each.stage == number
            )
            newest.update((each.stage, each) for each in awaited)
            if number not in newest:
                raise RunError(
                    f"{op} reads weights that nothing gathers, while others are gathered",
                    hint="give every stage of a device a gather G, or none",
                )
            found[op] = newest[number]
    return found


def _gradient_buffers(
    lane: HomeNumbers, reductions: Sequence[Op], earlier: Earlier
) -> dict[Op, int]:
    found: dict[Op, int] = {}
    held: dict[int, int] = {}
    free = count()
    for op, number in lane.items():
        if op.kind in ADDING:
            left = (e.stage for e in earlier.get(op, ()) if e.kind == "Z" and e.stage != number)
            for stage in left:
                held[number] = held.pop(stage)
            if number not in held:
                held[number] = next(free)
            found[op] = held[number]
    last = {lane[op]: buffer for op, buffer in found.items()}
    for reduction in reductions:
        ended = (found[op] for op in earlier.get(reduction, ()) if op in found)
        found[reduction] = next(ended, last[reduction.stage])
    return found

"""Building blocks: the passes of one microbatch on all devices, stamped once per interval.

Memory and bubble are hard to see in a whole schedule and easy to see in a block. A pass that starts
at s for the first microbatch starts at s + jT for microbatch j, so the block collides with itself
exactly where two passes of a device share a residue of T; a stage whose activation lives for l
units holds ceil(l/T) of them; and bubbles are only at the ends. Choose the starts, and repeat.

    1F1B on 2 devices, T = 3        repeated for 3 microbatches
    device 0  F     BB              F0 .  .  F1 B0 B0 F2 B1 B1 .  B2 B2
    device 1    F BB                .  F0 B0 B0 F1 B1 B1 F2 B2 B2 .  .

What comes out has holes; `squeeze` closes those that dependencies do not need, and _reorder fills
some of the others. Source: arXiv:2405.15362, sections 2 and 3.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from penstock.core.meaning import reads, writes
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.scoreboard import play_schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules.generators.streams import PlainOp

Pass = tuple[str, int]
"""Kind and stage (or vocabulary shard): an op without its microbatch."""
Slots = list[dict[Pass, list[int]]]
"""Of each device, when the passes of every microbatch start, in ascending order."""

LENGTHS: Mapping[str, int] = {"F": 1, "I": 1, "W": 1, "B": 2}
"""Units that a pass takes where blocks are designed; other kinds take none, and stand anywhere."""


@dataclass(frozen=True)
class Block:
    """Starts of one microbatch's passes, by device; those at the same time in their order."""

    interval: int
    starts: tuple[Mapping[Pass, int], ...]

    def collisions(self) -> Iterator[tuple[int, Pass, Pass]]:
        """Device and passes that would run at the same time once the block is repeated."""
        for device, starts in enumerate(self.starts):
            for one, other in combinations(starts, 2):
                if self._taken(device, one) & self._taken(device, other):
                    yield device, one, other

    def _taken(self, device: int, of: Pass) -> set[int]:
        """Residues of the interval that a pass occupies."""
        start = self.starts[device][of]
        return {(start + unit) % self.interval for unit in range(LENGTHS.get(of[0], 0))}

    def lifespan(self, device: int, stage: int) -> int:
        """Units from the start of a stage's forward to the end of what needs its activation."""
        starts = self.starts[device]
        last = next(kind for kind in "WB" if (kind, stage) in starts)
        return starts[last, stage] + LENGTHS[last] - starts["F", stage]

    def peak(self, device: int) -> int:
        """At most so many activations of a stage are alive at once."""
        stages = [stage for kind, stage in self.starts[device] if kind == "F"]
        return sum(-(-self.lifespan(device, stage) // self.interval) for stage in stages)

    def with_weights(self) -> "Block":
        """Every input gradient followed by its weight gradient, at the first free residue."""
        block = self
        for device, starts in enumerate(self.starts):
            for (kind, stage), start in starts.items():
                if kind == "I":
                    block = block._with_weight(device, stage, start + LENGTHS["I"])
        return block

    def _with_weight(self, device: int, stage: int, earliest: int) -> "Block":
        taken = {residue for each in self.starts[device] for residue in self._taken(device, each)}
        around = range(earliest, earliest + self.interval)
        free = [start for start in around if start % self.interval not in taken]
        if not free:
            raise ShapeError(
                f"device {device}: an interval of {self.interval} has no room for the weight "
                f"gradient of stage {stage}",
                hint="make the interval as long as a device's work on one microbatch",
            )
        extended = {**self.starts[device], ("W", stage): free[0]}
        return replace(self, starts=(*self.starts[:device], extended, *self.starts[device + 1 :]))

    def repeat(self, microbatches: int) -> Slots:
        """The block once per microbatch, or an error that says where it meets itself."""
        for device, one, other in self.collisions():
            raise ShapeError(
                f"device {device}: {one[0]} of stage {one[1]} and {other[0]} of stage {other[1]} "
                f"collide every {self.interval} units",
                hint="move one of them to a residue that is free on this device",
            )
        last = self.interval * microbatches
        return [
            {each: list(range(start, start + last, self.interval)) for each, start in row.items()}
            for row in self.starts
        ]


def lanes_of(slots: Slots) -> list[list[PlainOp]]:
    """The order of every device; what starts in the same slot stays in the order of its passes."""
    return [
        [
            (kind, stage, mb, 0)
            for _, _, (kind, stage), mb in sorted(
                (slot, turn, each, mb)
                for turn, (each, times) in enumerate(row.items())
                for mb, slot in enumerate(times)
            )
        ]
        for row in slots
    ]


def squeeze(shape: Shape, slots: Slots) -> Slots:
    """Keep the order of every device, and run each op as early as its dependencies allow."""
    schedule = Schedule.of("block", shape, lanes_of(slots))
    ops = schedule.table.ops()
    ran = play_schedule(schedule, np.array([LENGTHS.get(op.kind, 0) for op in ops]))
    if ran.stuck(schedule):
        raise ShapeError(
            "the order of a block waits for itself",
            hint="let every pass of the block start after the passes whose results it reads",
        )
    squeezed: Slots = [{each: [] for each in row} for row in slots]
    for op, device, start in zip(ops, schedule.table.device.tolist(), ran.start.tolist()):
        squeezed[device][op.kind, op.stage].append(start)
    return squeezed


def producers(shape: Shape, block: Block) -> dict[Pass, list[Pass]]:
    """For each pass of a block those whose results it reads, by the meaning of their kinds."""
    ops = [Op(*each, 0) for starts in block.starts for each in starts]
    writer = {buffer: op[:2] for op in ops for buffer in writes(op, shape)}
    return {
        op[:2]: [writer[buffer] for buffer in reads(op, shape) if buffer in writer] for op in ops
    }

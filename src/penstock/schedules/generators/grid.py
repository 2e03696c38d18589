"""Slots of 1F1B that turn from stage to stage: when each op of a looped placement would run.

Cut the time of device s into slots as wide as a forward and a backward, starting where the first
forward arrives. In each slot run one forward and then one backward, each slot for another of the
device's stages in turn. A forward moves one device per forward time, so it keeps its slot; a
backward moves back one device per backward time, so it loses one slot per device. Nothing collides
if the v stages of a device have forward slots that differ modulo v, and so have the backwards.

Times here are those of one stage, in whole ticks. Source: reconstructed from arXiv:2503.03182.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from penstock.core.shape import Shape
from penstock.schedules._registry import Case, Claim, Need, Option
from penstock.schedules.generators.placements import looped_placement, stages_of
from penstock.schedules.generators.streams import PlainOp

PAPER = "arXiv:2503.03182"

SHALLOW = Option(
    "recompute",
    int,
    default=lambda c: c.v // 2,
    text="how many of a device's stages are recomputed, the first ones; half of them by default",
)
SOME_KEPT = Need(
    lambda c: c[SHALLOW] < c.v,
    "recompute < v",
    "keep at least one of the {v} stages of a device: lower -o recompute",
)
"""Of schedules that recompute the first stages of a device."""

AS_1F1B = Claim(
    "makespan",
    "(m + p - 1)(2F + B)",
    lambda c: (c.m + c.p - 1) * (c.F + c.step),
    "measured against 1F1B that recomputes everything",
    bound=True,
)


class SlotGrid(NamedTuple):
    """Where the slots of microbatch 0 are; microbatch i is i v slots later."""

    devices: int
    F: int
    """Ticks of a forward of one stage."""
    B: int
    hop: int
    forward: tuple[int, ...]
    """Slot in which a device's first, second, ... stage goes forward: the same on all devices."""
    backward: tuple[int, ...]
    """Slot in which the last device's stages go back; the device before has a later one."""

    @classmethod
    def of(cls, case: Case) -> "SlotGrid":
        """The earliest slots in which nothing collides, at the prices of a request."""
        F, B, hop = _ticks(case)
        p, v, wide = case.p, case.v, F + B
        forward = [0]
        for _ in range(v - 1):
            # The next stage of device 0 follows the last device's, whose slots start p - 1 F later.
            forward.append(_slot(forward[-1] + Fraction(p * F, wide), forward, v))
        backward: list[int] = []
        earliest = Fraction(forward[-1])
        for _ in range(v):
            backward.append(_slot(earliest, backward, v))
            earliest = backward[-1] + Fraction(p * B, wide)
        return cls(p, F, B, hop, tuple(forward), tuple(reversed(backward)))

    @property
    def chunks(self) -> int:
        return len(self.forward)

    def start(self, kind: str, stage: int, mb: int) -> int:
        """When a forward or a backward would run if the grid were all there is."""
        place, device = divmod(stage, self.devices)
        turn = mb * self.chunks
        if kind == "F":
            return (self.forward[place] + turn) * (self.F + self.B) + device * self.F
        last = self.devices - 1
        slot = self.backward[place] + turn + last - device
        return slot * (self.F + self.B) + (device + 1) * self.F

    def waits(self, place: int, device: int = 0) -> int:
        """Slots from the forward to the backward of one of a device's stages."""
        return self.backward[place] + self.devices - 1 - device - self.forward[place]


def grid_lanes(grid: SlotGrid, microbatches: int) -> list[list[PlainOp]]:
    """The ops of each device in the order in which the grid starts them."""
    shape = Shape.even(grid.devices, microbatches, grid.chunks)
    return [
        sorted(
            (
                (kind, stage, mb, 0)
                for kind in "FB"
                for stage in stages
                for mb in range(microbatches)
            ),
            key=lambda op: grid.start(*op[:3]),
        )
        for stages in stages_of(looped_placement(shape))
    ]


def recompute_first(lane: Iterable[PlainOp], stages: int) -> list[PlainOp]:
    """The lane with the first `stages` of the model recomputed, right before their backwards.

    >>> recompute_first([("F", 0, 0, 0), ("F", 1, 0, 0), ("B", 1, 0, 0), ("B", 0, 0, 0)], stages=1)
    [('N', 0, 0, 0), ('F', 1, 0, 0), ('B', 1, 0, 0), ('R', 0, 0, 0), ('B', 0, 0, 0)]
    """
    found: list[PlainOp] = []
    for kind, stage, mb, part in lane:
        shallow = stage < stages
        if kind == "B" and shallow:
            found.append(("R", stage, mb, part))
        found.append(("N" if kind == "F" and shallow else kind, stage, mb, part))
    return found


def _ticks(case: Case) -> tuple[int, int, int]:
    """Forward, backward and hop of one stage; where nothing takes time, as if B were 2 F."""
    F, B = (case.F, case.B) if case.step else (Fraction(1), Fraction(2))
    times = (F / case.v, B / case.v, case.hop)
    scale = lcm(*(time.denominator for time in times))
    whole = [int(time * scale) for time in times]
    return whole[0], whole[1], whole[2]


def _slot(earliest: Fraction, taken: Sequence[int], chunks: int) -> int:
    """The first slot from `earliest` on that differs from those taken, modulo the stages."""
    slot = -int(-earliest // 1)
    while any((slot - other) % chunks == 0 for other in taken):
        slot += 1
    return slot

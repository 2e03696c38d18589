"""The order of 1F1B around sharded vocabulary layers: in every cycle of F and B, a bundle.

The turn from forward to backward waits until all devices have run their shard of the output layer,
so these passes must fall into the same short time everywhere, although the devices are apart by up
to p - 1 backwards. A bundle is T of one unit and S of the next, and takes with it the input passes
of units that are far enough away. Source: arXiv:2411.05288 and its public code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from penstock.core.shape import Shape
from penstock.schedules._registry import Case
from penstock.schedules.generators.streams import PlainOp, backward_units, forward_units
from penstock.schedules.generators.vocabulary import ALGORITHM, barriers


def bundle_orders(devices: int, forward: Fraction, backward: Fraction) -> list[str]:
    """Of each device, which of bundle and forward follows a backward: BSF or BFS.

    From the last device up, backwards come a backward later and bundles with them; as their cycle
    is a forward longer, bundles come a forward earlier in it. Before they would leave the time of
    one backward, a device lets its forward go first.
    """
    found, offset = ["BSF"], Fraction(0)
    while len(found) < devices:
        if offset - forward >= -backward:
            offset -= forward
            found.append("BSF")
        else:
            offset += backward - forward
            found += ["BFS", "BSF"]
    return found[:devices][::-1]


def extra_bundles(orders: Sequence[str]) -> list[int]:
    """Bundles that each device runs before its first backward, beside those of the last device."""
    found = [0]
    for order, below in zip(orders[-2::-1], orders[:0:-1]):
        found.append(found[-1] + (below != "BFS" or order != "BSF"))
    return found[::-1]


@dataclass(frozen=True)
class Rhythm:
    """What all devices share: how long F and B take, and how often the turn waits for all."""

    shape: Shape
    forward: Fraction
    backward: Fraction
    barriers: int

    @classmethod
    def of(cls, shape: Shape, case: Case) -> "Rhythm":
        # The order asks for B >= F; where both take no time, any order will do.
        backward = max(case.B, case.F) or Fraction(1)
        return cls(shape, case.F, backward, barriers(case[ALGORITHM]))

    @property
    def ahead(self) -> int:
        """Units whose bundles run, beside the first, before the turn can follow."""
        return self.barriers - 1 + self.shape.slices[0] - 1

    def lanes(self) -> list[list[PlainOp]]:
        """The lane of every device."""
        by_device = bundle_orders(self.shape.devices, self.forward, self.backward)
        extra = extra_bundles(by_device)
        return [_Lane(self, device, extra).filled(order) for device, order in enumerate(by_device)]

    def last_bundle(self, device: int) -> int:
        """The backward that may not start before the last T of algorithm 1 has run here.

        The last turn comes when the devices below have drained; a backward that starts earlier and
        ends later would hold it up.
        """
        above, late = self.shape.devices - 1 - device, self.barriers - 1
        cycles = (above - late) * self.backward / (self.forward + self.backward)
        wait = min(above, late - int(-cycles // 1))
        return self.shape.units - self.shape.slices[0] - wait


class _Lane:
    """The lane of one device while it is filled; every kind has its own queue of units."""

    def __init__(self, rhythm: Rhythm, device: int, extra: Sequence[int]) -> None:
        self._rhythm, self._device, self._extra = rhythm, device, extra
        forth, back = forward_units(rhythm.shape), backward_units(rhythm.shape)
        queues = {"E": forth, "F": forth, "S": forth, "T": forth, "B": back, "D": back}
        self._queues = {kind: iter(queue) for kind, queue in queues.items()}
        self._bundles = 0
        self._last = rhythm.shape.units + rhythm.barriers - 1
        self._ops: list[PlainOp] = []

    def filled(self, order: str) -> list[PlainOp]:
        """Warm up, alternate, drain."""
        units, ahead = self._rhythm.shape.units, self._rhythm.ahead
        depth = min(self._rhythm.shape.devices, units)
        warmup = min(self._rhythm.shape.devices - self._device, units)
        self._run("E" * (depth - warmup + 1) + "EF" * warmup)
        for _ in range(ahead + 1):
            self._bundle()
            self._run("F")
        for _ in range(self._extra[self._device]):
            self._bundle()
        steady = max(0, units - warmup - 1 - ahead)
        for _ in range(steady):
            self._round(order)
        self._drain(steady)
        return self._ops

    def _round(self, order: str) -> None:
        for letter in order:
            if letter == "S":
                self._bundle()
            else:
                self._run(letter)

    def _drain(self, backward: int) -> None:
        shape = self._rhythm.shape
        for number in range(backward, shape.units):
            if self._rhythm.barriers > 1 and number >= self._rhythm.last_bundle(self._device):
                while self._bundles < self._last:
                    self._bundle()
            self._round("BS")
        self._run("D" * shape.units + "T")

    def _bundle(self) -> None:
        """T of the unit before, S of the next one, and the input passes that go with them."""
        if self._bundles == self._last:
            return
        number, first = self._bundles, self._extra[0] + self._rhythm.ahead
        self._bundles += 1
        self._run("TS" if number else "S")
        if number < self._rhythm.ahead or number >= first:
            self._run("E")
        if number >= first + 2:
            self._run("D")

    def _run(self, kinds: str) -> None:
        """The next unit of each kind, as far as there is one."""
        for kind in kinds:
            unit = next(self._queues[kind], None)
            if unit is not None:
                self._ops.append((kind, self._device, *unit))

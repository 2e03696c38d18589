"""Who attends to whose keys and values at a step of the lock-step.

Slices of equal length are unequal work under causal attention: a slice attends to all slices before
it. Devices at different slices of the same step can even that out. The load of a device is the
number of past key/value slices that it has to attend to; its own slice stays at home.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.core.ops import Op
from penstock.core.schedule import Loan
from penstock.core.shape import Shape
from penstock.schedules.generators.lockstep import full_steps


class Move(NamedTuple):
    """`slices` key/value slices of device `heavy` are attended to by device `light`."""

    heavy: int
    light: int
    slices: int


ExchangeRule = Callable[[Sequence[int]], list[Move]]
"""Loads of the devices -> what is moved."""


def pair_up(loads: Sequence[int], most: int) -> list[Move]:
    """The device with the q-th smallest load and the one with the q-th largest meet halfway.

    >>> pair_up([1, 0, 7, 6], most=100)
    [Move(heavy=2, light=1, slices=3), Move(heavy=3, light=0, slices=2)]
    """
    devices = sorted(range(len(loads)), key=lambda device: loads[device])
    pairs = zip(devices[: len(devices) // 2], reversed(devices))
    moves = [Move(b, a, min((loads[b] - loads[a]) // 2, most)) for a, b in pairs]
    return [move for move in moves if move.slices]


def level(loads: Sequence[int]) -> list[Move]:
    """All loads as equal as whole slices can be, with as few slices moved as that takes.

    >>> level([0, 7, 6, 5])
    [Move(heavy=1, light=0, slices=2), Move(heavy=2, light=0, slices=1), \
Move(heavy=3, light=0, slices=1)]
    """
    each, over = divmod(sum(loads), len(loads))
    falling = sorted(range(len(loads)), key=lambda device: -loads[device])
    wanted = {device: each + (place < over) for place, device in enumerate(falling)}
    lending = [(device, loads[device] - wanted[device]) for device in falling]
    givers = [(device, count) for device, count in lending if count > 0]
    takers = [(device, -count) for device, count in reversed(lending) if count < 0]
    return list(_matched(givers, takers))


def _matched(givers: list[tuple[int, int]], takers: list[tuple[int, int]]) -> Iterator[Move]:
    """Largest giver with largest taker, until all is placed: both give and take the same in all."""
    while givers:
        (heavy, lent), (light, room) = givers.pop(0), takers.pop(0)
        count = min(lent, room)
        yield Move(heavy, light, count)
        if lent > count:
            givers.insert(0, (heavy, lent - count))
        if room > count:
            takers.insert(0, (light, room - count))


def loans(shape: Shape, rule: ExchangeRule) -> tuple[Loan, ...]:
    """What the rule moves at every step at which all devices have work."""
    return tuple(
        Loan(Op(*ops[move.heavy]), Op(*ops[move.light]), move.slices)
        for ops in full_steps(shape)
        for move in rule([slice for _, _, _, slice in ops])
    )

"""Times below which no cut, placement and order can be, and why.

A search that stops says what it found, not how far it is from the best there is. A lower bound
tells: what meets it is optimal, and the distance to it is the most that anybody could still gain.
Each bound holds for every way to cut the layers into stages, to place stages on p devices such that
every device has one, and to order forwards F, input gradients I and weight gradients W (or both as
one op) of sequences in k equal slices or fewer, within a memory limit on every device. Times, sizes
and the layers are those of `Scale`, in whole ticks and grains of a slice. The one on memory holds
without recomputation only.

The proofs use that a stage does all its layers as one op: the op of a layer's stage takes at least
the time of that layer alone and holds at least its memory.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from penstock.search.joint.joint import Problem


class Bound(NamedTuple):
    """A time that no schedule is below, and the name of the reason."""

    ticks: int
    reason: str


def lower_bound(problem: Problem, leave_out: Collection[str] = ()) -> Bound:
    """The largest of all bounds but some."""
    names = [name for name in BOUNDS if name not in leave_out]
    found = [Bound(BOUNDS[name](problem), name) for name in names]
    return max(found, key=lambda bound: bound.ticks)


def work(problem: Problem) -> int:
    """All devices together do m times the work of all layers, so one of them does 1/p of it."""
    total = problem.units * int(problem.scale.layers[:, :3].sum())
    return -(-total // problem.devices)


def heaviest_layer(problem: Problem) -> int:
    """The device of a layer does it m times, one after the other."""
    return problem.units * int(problem.scale.layers[:, :3].sum(axis=1).max())


def first_return(problem: Problem) -> int:
    """A layer has all its gradients before it when the first slice comes back to it.

    That is the last slice of its sequence. By then it has gone forward through all layers, in one
    of them, whichever it is, behind the k - 1 slices before it, and back through those behind. All
    p devices have stages, so the way forward changes devices at least p - 1 times; the way back to
    layer 0 does so again.
    """
    away = (problem.devices - 1) * problem.scale.hop
    forward, back, weight = problem.scale.layers[:, :3].T
    behind = back.sum() - np.cumsum(back)
    returned = forward.sum() + (problem.slices - 1) * forward.max() + away + behind
    returned[0] += away
    return int((returned + problem.units * (back + weight)).max())


def last_departure(problem: Problem) -> int:
    """The last slice leaves a layer behind all other forwards of that layer.

    The first one came there through the layers in front; the last one has the layers behind before
    it, and with the k - 1 slices before it the way back through all of them, in one of which, at
    least, they queue; and then a weight gradient of layer 0.
    """
    away = 2 * (problem.devices - 1) * problem.scale.hop
    forward, back, weight = problem.scale.layers[:, :3].T
    waited = (problem.units - 1) * int(forward.max()) + (problem.slices - 1) * int(back.max())
    return waited + int(forward.sum() + back.sum() + weight[0]) + away


def ramp(problem: Problem) -> int:
    """Devices cannot all start at once.

    Number the devices by the first layer that each of them holds. The i-th cannot start before the
    first slice has gone through all layers in front, which are at least i layers, and has
    changed devices at least i times, since i other devices come first. From then on it does all
    its work. Summed over the devices, p times the makespan is at least all the work and all these
    delays.
    """
    time, hop = problem.scale.layers[:, :3], problem.scale.hop
    passed = np.concatenate([[0], np.cumsum(time[:, 0])])[: problem.devices]
    delays = int(passed.sum()) + hop * (problem.devices - 1) * problem.devices // 2
    total = problem.units * int(time.sum()) + delays
    return -(-total // problem.devices)


def memory(problem: Problem) -> int:
    """Memory is occupied for a time, and a device has only so much of both.

    Of each slice, layer l holds its activation from the start of its F to the end of its I:
    at least the forwards and input gradients of l and all layers behind it. Its stash is held
    through W, at least. Where backwards are not split, its activation is held through W instead,
    so that the smaller of the two counts. The sum over all slices of size times duration is at
    most limit times makespan on the device of a layer, and p times that on all together.
    """
    layers, cap = problem.scale.layers.astype(object), problem.cap
    back = np.cumsum((layers[:, 0] + layers[:, 1])[::-1])[::-1]
    held = layers[:, 3] * back + np.minimum(layers[:, 3], layers[:, 4]) * layers[:, 2]
    alone, together = problem.units * held.max(), problem.units * held.sum()
    return int(max(-(-alone // cap), -(-together // (cap * problem.devices)))) if cap else 0


BOUNDS: dict[str, Callable[[Problem], int]] = {
    "work": work,
    "heaviest layer": heaviest_layer,
    "first return": first_return,
    "last departure": last_departure,
    "ramp": ramp,
    "memory": memory,
}

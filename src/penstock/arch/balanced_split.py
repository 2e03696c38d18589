"""A split of equal layers that evens out what the ends of the model add.

The head of a model with many words may cost as much as two layers. Where layers are dealt evenly,
the device of the last stage is then slower than the others, which wait for it in every microbatch.

    32 layers on 4 devices, a head like two layers

    even        8  8  8  8+2      the slowest has 10
    balanced    8  8  9  7+2                       9
"""

from collections.abc import Sequence

from penstock.arch.layer_split import even_split

Loads = Sequence[float]
LEAST_GAIN = 1e-6
"""Layers by which a split must be faster than an even one to be worth its mention."""


def balance_layers(layers: int, more: Loads, homes: Sequence[int]) -> tuple[int, ...]:
    """Layers of each stage, with which the slowest device is as fast as it can be; `more` is what
    else a stage has to do, in layers, and `homes` has the device of each stage.

    Layer by layer, the stage takes it whose device would be done first: layers are equal, so that
    no other order gives less. Of equals the last one takes it, which keeps fewer microbatches.

    >>> balance_layers(32, (0.0, 0.0, 0.0, 2.0), (0, 1, 2, 3))
    (8, 8, 9, 7)
    """
    counts = [0] * len(homes)
    devices = [sum(each for each, at in zip(more, homes) if at == home) for home in homes]
    for _ in range(layers):
        stage = min(
            range(len(homes)),
            key=lambda at: (round(devices[at], 9), round(counts[at] + more[at], 9), -at),
        )
        counts[stage] += 1
        devices = [load + (home == homes[stage]) for load, home in zip(devices, homes)]
    return tuple(counts)


def faster_split(layers: int, more: Loads, homes: Sequence[int]) -> tuple[int, ...]:
    """The balanced split where its slowest device is faster than with an even one, else nothing."""
    balanced = balance_layers(layers, more, homes)
    even = even_split(layers, len(homes))
    gained = slowest_device(even, more, homes) - slowest_device(balanced, more, homes)
    return balanced if gained > LEAST_GAIN else ()


def slowest_device(counts: Sequence[int], more: Loads, homes: Sequence[int]) -> float:
    """What the device that has most to do has, in layers."""
    found = dict.fromkeys(homes, 0.0)
    for count, other, home in zip(counts, more, homes):
        found[home] += count + other
    return max(found.values())

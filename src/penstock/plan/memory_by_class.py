"""Bytes of a device by what they are for, when it holds most: what a report sets side by side.

One number says whether a run fits. Whoever wants to know why a prediction is wrong, or what to make
smaller, needs it by class. Classes are those of buffers (core/buffers.py), so that what is measured
can be sorted by the same names.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.buffers import BUFFERS
from penstock.core.lifetimes import TEMPORARY
from penstock.core.schedule import Schedule
from penstock.cost.hardware import HARDWARE
from penstock.cost.transformer import TransformerCost
from penstock.cost.workload import Workload
from penstock.plan.memory import Footprint
from penstock.sim.memory import changes_by_size, levels_at_peaks
from penstock.sim.play import play

ACTIVATION_SIZES, KEY_SIZES = ("act", "stash", "ckpt"), ("kv", "dkv")
RUNNING_SIZES = (TEMPORARY, "logits")
"""What an op needs while it runs. Logits are among it: the loss makes them piece by piece."""


class ClassBytes(NamedTuple):
    """Bytes of one rank of a device."""

    weights: int
    """What is computed with, where it is not the main weights themselves."""
    gradients: int
    optimizer: int
    """Main weights and moments."""
    activations: int
    keys_values: int
    logits_temporaries: int
    communication_buffers: int
    """What comes and goes between devices."""

    @property
    def step(self) -> int:
        """What a step adds to what is held all the time."""
        return sum(self[3:])


def class_of_buffer(name: str) -> str:
    """The class of a buffer of the meaning table.

    >>> [class_of_buffer(name) for name in ("keep", "kv", "logits", "x")]
    ['activations', 'keys_values', 'logits_temporaries', 'communication_buffers']
    """
    size = BUFFERS[name].size
    if size in ACTIVATION_SIZES or name == "keep":
        return "activations"
    if size in KEY_SIZES:
        return "keys_values"
    return "logits_temporaries" if size in RUNNING_SIZES else "communication_buffers"


def predicted_classes(
    schedule: Schedule,
    workload: Workload,
    rows: int,
    held: Sequence[Footprint],
    peaks: Sequence[int],
) -> list[ClassBytes]:
    """Of each device, whose step adds so many bytes at its peak. What of these the cost model does
    not know as a buffer are messages."""
    cost = TransformerCost(workload, next(iter(HARDWARE.values())))
    done, _ = play(schedule, cost, "together")
    levels = levels_at_peaks(schedule, changes_by_size(schedule, cost), done)

    def known(device: int, sizes: Sequence[str]) -> int:
        return rows * sum(levels[size][device] for size in sizes if size in levels)

    found = []
    for device, (footprint, peak) in enumerate(zip(held, peaks)):
        activations, keys, running = (
            known(device, sizes) for sizes in (ACTIVATION_SIZES, KEY_SIZES, RUNNING_SIZES)
        )
        messages = max(0, peak - activations - keys - running)
        state = footprint.optimizer - footprint.gradients
        constant = (footprint.weights, footprint.gradients, state)
        found.append(ClassBytes(*constant, activations, keys, running, messages))
    return found

"""How much memory a device needs: what a run holds all the time, and what a step adds to it.

All the time: weights in the type that is computed in, main weights, gradients and two moments. In a
step: what the simulator says is alive at the worst moment, and the receive slots, which are taken
as long as something is under way. What has been sent and waits because its receiver is late comes
on top; it is nothing where devices keep pace.
"""

from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import NamedTuple

from penstock.core.homes import weight_homes
from penstock.core.schedule import Schedule
from penstock.cost.hardware import HARDWARE
from penstock.cost.transformer import TransformerCost
from penstock.cost.workload import Workload
from penstock.lower import lower_for_running
from penstock.sim import simulate

MAIN_BYTES = 4
"""Main weights, gradients and moments are kept in 32 bits, or in more where that is computed in."""


class Footprint(NamedTuple):
    """Bytes of one device."""

    weights: int
    """What is computed with, where it is not the main weights themselves."""
    optimizer: int
    """Main weights, gradients and moments; of stages that are updated on the host, gradients."""
    step: int
    """The most that a step adds."""

    @property
    def total(self) -> int:
        return sum(self)


def footprints(
    schedule: Schedule, workload: Workload, rows: int = 1, *, on_host: Collection[int] = ()
) -> tuple[Footprint, ...]:
    """What each device of a pipeline needs; `rows` sequences lie side by side.

    Main weights and moments of the stages `on_host` are kept and updated there.
    """
    steps = step_peaks(schedule, workload, rows)
    narrow, main = workload.model.element_bytes, max(MAIN_BYTES, workload.model.element_bytes)
    found = [Footprint(0, 0, step) for step in steps]
    for stage, devices in weight_homes(schedule).items():
        away = stage in on_host
        count = stage_elements(workload, stage)
        for device in devices:
            weights, optimizer, step = found[device]
            weights += count * narrow * (narrow < main or away)
            found[device] = Footprint(weights, optimizer + (1 if away else 4) * count * main, step)
    return tuple(found)


def stage_elements(workload: Workload, stage: int) -> int:
    """Parameters of a stage; embedding and head are held apart even where they are tied."""
    model, last = workload.model, len(workload.layers) - 1
    count = workload.layers[stage] * (model.layer_weights + model.layer_vectors)
    count += model.head_weights * ((stage == 0) + (stage == last))
    return count + model.last_norm.vectors * (stage == last)


def step_peaks(schedule: Schedule, workload: Workload, rows: int = 1) -> list[int]:
    """The most that a step adds on each device, in bytes; times do not matter for it."""
    cost = TransformerCost(workload, next(iter(HARDWARE.values())))
    peaks: Sequence[Fraction] = simulate(schedule, cost).peak
    slots = slot_bytes(schedule, workload)
    return [rows * (int(peak) + more) for peak, more in zip(peaks, slots)]


def slot_bytes(schedule: Schedule, workload: Workload) -> list[int]:
    """Bytes of each device's receive slots, each as large as the longest slice."""
    program = lower_for_running(schedule)
    longest = max(max(lengths) for lengths in workload.lengths)
    found = [0] * schedule.shape.devices
    for channel, slots in zip(program.channels, program.slots):
        found[channel.target] += slots * longest * workload.model.boundary_bytes
    return found

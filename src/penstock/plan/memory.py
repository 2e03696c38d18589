"""How much memory a device needs: what a run holds all the time, and what a step adds to it.

All the time: weights in the type that is computed in, main weights, gradients and two moments; of
weights that are frozen the first alone. In a step: what the simulator says is alive at the worst
moment, and the receive slots, which are taken as long as something is under way. What has been sent
and waits because its receiver is late comes on top; it is nothing where devices keep pace. At the
end of a step, when nothing of the batch is alive any more: what the optimizer needs to update the
largest stage, which on a GPU is nothing. The gradients of embedding and head of a tied model are
added up in place and need nothing.

Ranks that share the optimizer's work keep a range of main weights and moments each. What they
receive while they add up gradients is bounded (`MESSAGE` in arch/ownership.py); new values are
gathered in place.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from penstock.arch.ownership import message_room, most_owned
from penstock.check.memory import bound
from penstock.core.homes import shard_homes, weight_homes
from penstock.core.schedule import Schedule
from penstock.cost.hardware import HARDWARE
from penstock.cost.transformer import TransformerCost
from penstock.cost.workload import Workload
from penstock.plan.host_memory import host_peaks, host_states
from penstock.plan.receive_slots import with_slots
from penstock.plan.stage_parameters import (
    MAIN_BYTES,
    StageCounts,
    counts_of_homes,
)
from penstock.sim import simulate
from penstock.sim.memory import changes_of


class Footprint(NamedTuple):
    """Bytes of one device."""

    weights: int
    """What is computed with, where it is not the main weights themselves."""
    optimizer: int
    """Main weights, gradients and moments; of stages that are updated on the host, gradients."""
    step: int = 0
    """The most that a batch adds on its way forward and back."""
    end: int = 0
    """The most that the update adds behind it."""
    communication: int = 0
    """Communicators, which a GPU must have room for and torch does not allocate."""
    host: int = 0
    """What waits on the host at most, and optimizer state that is kept there; what is copied of it
    a GPU needs pinned."""
    gradients: int = 0
    """How much of the optimizer's memory are gradients."""

    @property
    def held(self) -> int:
        """What a run holds all the time."""
        return self.weights + self.optimizer

    @property
    def looked_at(self) -> int:
        """Room that a device needs to run batches without updating anything: no moments. Ranks that
        share nothing need it."""
        return self.weights + self.optimizer // 2 + self.step + self.communication

    @property
    def total(self) -> int:
        """What torch allocates at most."""
        return self.weights + self.optimizer + max(self.step, self.end)


Users = Sequence[frozenset[int]]
"""For each buffer of a device the stages that use it in turn."""


class Gathered(NamedTuple):
    """Who uses the buffers of a device whose stages are gathered when they are needed."""

    weights: Users
    gradients: Users


def footprints(
    schedule: Schedule,
    workload: Workload,
    rows: int = 1,
    *,
    on_host: Collection[int] = (),
    owners: int = 1,
    gathered: Sequence[Gathered] = (),
    states: int = 1,
) -> tuple[Footprint, ...]:
    """What each device of a pipeline needs; `rows` sequences lie side by side.

    Main weights and moments of the stages `on_host` are kept and updated there. `owners` ranks that
    hold the same stage share those of the others. With the buffers of `gathered` stages, one for
    each device, they share values and gradients too. What is owned of main weights and moments is
    held `states` times.
    """
    steps, waiting = step_peaks(schedule, workload, rows), host_peaks(schedule, workload, rows)
    kept = host_states(schedule, workload, on_host, states)
    held = held_footprints(
        schedule, workload, on_host=on_host, owners=owners, gathered=gathered, states=states
    )
    each = zip(held, steps, waiting, kept)
    return tuple(found._replace(step=step, host=sum(host)) for found, step, *host in each)


def held_footprints(
    schedule: Schedule,
    workload: Workload,
    *,
    on_host: Collection[int] = (),
    owners: int = 1,
    gathered: Sequence[Gathered] = (),
    states: int = 1,
) -> tuple[Footprint, ...]:
    """The same of what a run holds all the time, and of the update, without a step."""
    narrow, main = workload.model.element_bytes, max(MAIN_BYTES, workload.model.element_bytes)
    shape = schedule.shape
    found, counts = [Footprint(0, 0)] * shape.devices, counts_of_homes(workload, shape)
    for stage, devices in (weight_homes(schedule) | shard_homes(shape)).items():
        away = stage in on_host
        matrices, count, stored, frozen = counts[stage]
        owned = most_owned(stored, owners)
        updated = (
            owned if narrow < main else stored
        )  # main weights that are computed with are whole
        roots = 0 if away else workload.needs.roots * most_owned(matrices, owners)
        room = max(roots, message_room(stored, owners)) * main
        for device in devices:
            before = found[device]
            found[device] = before._replace(
                weights=before.weights
                + stored * narrow * (narrow < main or away)
                + frozen * narrow,
                optimizer=before.optimizer
                + (count + (updated + (3 * states - 1) * owned) * (not away)) * main,
                end=max(before.end, room),
                gradients=before.gradients + count * main,
            )
    sharded = [_gathered(counts, narrow, each, owners, states) for each in gathered]
    return tuple(each._replace(**held) for each, held in zip(found, sharded)) or tuple(found)


def _gathered(
    counts: Sequence[StageCounts], narrow: int, buffers: Gathered, owners: int, states: int
) -> dict[str, int]:
    """What a device holds where a rank has ranges alone, and buffers as large as the largest stage
    that uses them. A stage with a gradient buffer to itself has its range in that."""
    main, stages = max(MAIN_BYTES, narrow), {s for users in buffers.gradients for s in users}
    stored = {s: counts[s].stored for s in stages}
    whole = {s: counts[s].elements for s in stages}
    frozen = {s: counts[s].frozen for s in stages}
    owned = {s: most_owned(count, owners) for s, count in stored.items()}
    values = sum(max(stored[s] + frozen[s] for s in users) for users in buffers.weights)
    values += sum(most_owned(count, owners) for count in frozen.values())
    gradients = sum(max(whole[s] for s in users) for users in buffers.gradients)
    gradients += sum(owned[s] for users in buffers.gradients for s in users if len(users) > 1)
    mine = sum(owned.values())
    return {
        "weights": mine * narrow * (narrow < main) + values * narrow,
        "optimizer": (3 * states * mine + gradients) * main,
        "gradients": gradients * main,
    }


def step_peaks(schedule: Schedule, workload: Workload, rows: int = 1) -> list[int]:
    """The most that a step adds on each device, in bytes.

    Times do not matter for it. Where copies run beside the compute lane they would, so there it is
    what the order allows at most: memory counts as given back where an op waits for the copy.
    """
    cost = TransformerCost(workload, next(iter(HARDWARE.values())))
    timeline = simulate(schedule, cost)
    if "O" in schedule.table.kinds:
        at_start, at_end, grain = changes_of(schedule, cost)
        devices = range(schedule.shape.devices)
        proven = [bound(schedule, at_start, at_end, device)[0].max() for device in devices]
        levels = np.array([int(level * grain / timeline.grain) for level in proven], np.int64)
        levels = np.maximum(timeline.peak_levels, levels)
        timeline = replace(timeline, peak_levels=levels)
    return [int(peak) for peak in with_slots(timeline, workload, rows).peak]

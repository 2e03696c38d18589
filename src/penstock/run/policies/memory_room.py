"""What a step may take on each device: another plan must fit before it is taken.

Ranks of a machine may have less free than others, so each says what it has, and the least of a
device counts. All of them then judge a plan alike.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from penstock.cost.cell_workload import rank_workload
from penstock.plan.cell_memory import fullest_rank
from penstock.plan.memory import footprints, step_peaks
from penstock.plan.receive_slots import slot_bytes
from penstock.run.comm.collective import add_up
from penstock.run.observe.device_workload import workload_of
from penstock.run.observe.memory_meter import free_bytes
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine


class MemoryRoom(NamedTuple):
    """Bytes that a step may add on each device."""

    devices: Sequence[int]
    torch_device: torch.device

    def fits(self, plan: StepPlan) -> bool:
        """Whether a step of this plan keeps to it on every device."""
        return not self.missing(plan)

    def missing(self, plan: StepPlan) -> dict[int, int]:
        """Bytes that a step of this plan lacks, by device; only devices that lack any."""
        cell, workload = plan.layout.cell, workload_of(plan, self.torch_device)
        fullest = fullest_rank(plan.schedule, workload, cell, plan.rows)
        peaks = step_peaks(plan.schedule, fullest, plan.rows)
        rooms = zip(peaks, self.devices, strict=True)
        return {at: peak - room for at, (peak, room) in enumerate(rooms) if peak > room}

    def for_activations(self, plan: StepPlan) -> int:
        """Bytes of a device for one sequence of each microbatch, the receive slots of the plan
        taken off; the least of all devices."""
        slots = slot_bytes(plan.schedule, workload_of(plan, self.torch_device))
        return min(room // plan.rows - slot for room, slot in zip(self.devices, slots))


def room_of(engine: Engine, limit: int) -> MemoryRoom:
    """The room of a run whose ranks may have `limit` bytes each, or all that is free with 0; all
    ranks ask together, before the first step."""
    mesh, plan = engine.mesh, engine.plan
    if limit:
        workload = rank_workload(workload_of(plan, engine.device), plan.layout.cell, mesh.place)
        owners, states = engine.owners, engine.validation.states
        held = footprints(
            plan.schedule,
            workload,
            plan.rows,
            owners=owners,
            states=states,
            on_host=engine.adam.host_stages,
        )
        own = limit - held[mesh.device].held
    else:
        own = free_bytes(engine.device)
    said = torch.zeros(mesh.grid.ranks, dtype=torch.float64)
    said[mesh.rank] = own
    with engine.tracker.gathers("state their free memory"):
        add_up(said, mesh.world)
    places = [mesh.grid.coordinates(rank)["device"] for rank in range(mesh.grid.ranks)]
    least = [
        min(int(said[rank]) for rank, at in enumerate(places) if at == device)
        for device in range(mesh.devices)
    ]
    return MemoryRoom(least, engine.device)

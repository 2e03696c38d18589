"""How much memory the ranks of a run need, where a device of the schedule is a cell of several.

Ranks of a cell share matrices and tokens, so each needs less than a device by itself, and where
sizes do not divide some need more than others. Ranks that hold the same weights, those of other
replicas and those that share tokens, may divide main weights and moments among them, or all.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from penstock.arch.cell_shape import CellShape
from penstock.arch.mesh_shape import MeshShape
from penstock.core.schedule import Schedule
from penstock.cost.cell_workload import rank_workload, rank_workloads
from penstock.cost.workload import Workload
from penstock.plan.host_memory import host_peaks, host_states
from penstock.plan.memory import Gathered, footprints, step_peaks


class SharedWeights(NamedTuple):
    """How ranks that hold the same weights divide them."""

    owners: int = 1
    """Ranks that divide main weights and moments."""
    gathered: Sequence[Gathered] = ()
    """Who uses the buffers of each device for whole stages, where weights and gradients are
    divided too."""
    states: int = 1
    """How often a rank holds the main weights and moments that it owns: twice where an update may
    be taken back."""
    on_host: Collection[int] = ()
    """Stages whose main weights and moments are on the host."""


UNSHARED = SharedWeights()


def run_bytes(
    schedule: Schedule,
    workload: Workload,
    mesh: MeshShape,
    rows: int = 1,
    shared: SharedWeights = UNSHARED,
) -> int:
    """What all ranks of a run hold at most, together, where their devices are the host."""
    return mesh.replicas * sum(
        device.total + device.host
        for rank in rank_workloads(workload, mesh.cell)
        for device in footprints(
            schedule,
            rank,
            rows,
            owners=shared.owners,
            gathered=shared.gathered,
            states=shared.states,
            on_host=shared.on_host,
        )
    )


def fullest_rank(
    schedule: Schedule, workload: Workload, cell: CellShape, rows: int = 1
) -> Workload:
    """The part of that rank of a cell to which a step adds most."""
    if cell.ranks == 1:
        return rank_workload(workload, cell)
    return max(
        rank_workloads(workload, cell), key=lambda rank: sum(step_peaks(schedule, rank, rows))
    )


def run_host_bytes(
    schedule: Schedule,
    workload: Workload,
    mesh: MeshShape,
    rows: int = 1,
    shared: SharedWeights = UNSHARED,
) -> int:
    """What waits and what is kept on the host at most, of all ranks together."""
    ranks = [*rank_workloads(workload, mesh.cell)]
    waiting = sum(sum(host_peaks(schedule, rank, rows)) for rank in ranks)
    kept = (host_states(schedule, rank, shared.on_host, shared.states) for rank in ranks)
    return mesh.replicas * (waiting + sum(map(sum, kept)))

"""Room on the host for what a step plan offloads from one rank.

The plan counts what is saved by tokens and features. A few numbers for each token come on top, of
norms and of the softmax, and each storage begins at a round number.
"""

from dataclasses import replace

from penstock.arch.cell_shape import CellPlace
from penstock.cost.cell_workload import rank_workload
from penstock.cost.stage_workload import workload_for
from penstock.plan.host_memory import host_peaks
from penstock.run.comm.mesh import Mesh
from penstock.run.program.step_plan import StepPlan

MORE = 32
"""One part in so many comes on top, and as many KiB for each sequence."""


def host_room(plan: StepPlan, mesh: Mesh) -> int:
    """Bytes for all that waits there at once."""
    layout = plan.layout
    if "O" not in plan.schedule.table.kinds:
        return 0
    model = replace(layout.model, element_bytes=layout.dtype.itemsize)
    whole = workload_for(plan.schedule.shape, model, plan.lengths, layout.layers)
    here = mesh.grid.coordinates(mesh.rank)
    place = CellPlace(here["tensor"], here["ulysses"], here["ring"])
    workload = rank_workload(whole, layout.cell, place)
    most = host_peaks(plan.schedule, workload, plan.rows)[mesh.device]
    return most + most // MORE + (len(plan.lengths) * MORE << 10) if most else 0

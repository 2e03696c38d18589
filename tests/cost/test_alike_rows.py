"""One row of each sort is priced: what it hands on to the others is what each costs by itself."""

import numpy as np
import pytest

from cost.test_cell_cost import cost_of
from penstock.arch.mesh_shape import MeshShape
from penstock.arch.presets import model
from penstock.core.schedule import Schedule
from penstock.cost.alike_rows import alike_rows, alike_units, single_units
from penstock.cost.cell_cost import CellCost
from penstock.cost.cell_sums import CellSums
from penstock.cost.hardware import hardware
from penstock.cost.mesh_links import MeshLinks
from penstock.cost.op_collectives import op_collectives
from penstock.cost.workload import Workload
from penstock.schedules import build
from penstock.transform import offload_stages, split_backward

SCHEDULES = {
    "sliced": build("seq1f1b", devices=2, microbatches=4, slices=2),
    "split": split_backward(build("seq1f1b", devices=2, microbatches=3, slices=2)),
    "copied": offload_stages(build("gpipe", devices=2, microbatches=8), [0, 1]),
}


def _summed(cost: CellSums, schedule: Schedule) -> list[tuple[float, float]]:
    """Seconds in all and exposed of each op, collective by collective."""
    found = []
    for op in schedule.table.ops():
        each = op_collectives(cost.workload, cost.share, op) if op.kind in "FNRBI" else []
        total = sum(one.times * cost.seconds(one) for one in each)
        found.append((total, sum(one.times * cost.exposed(one) for one in each)))
    return found


@pytest.mark.parametrize("mesh", [MeshShape(tensor=2), MeshShape(sequence=4, ring=2)])
@pytest.mark.parametrize("name", SCHEDULES)
def test_rows_send_what_their_ops_send_one_by_one(name: str, mesh: MeshShape) -> None:
    schedule = SCHEDULES[name]
    lengths = (1280, 768)[: schedule.shape.slices[0]]
    cost = cost_of(schedule, mesh, lengths=lengths)
    inside = cost.inside(schedule)
    assert [*zip(inside.total.tolist(), inside.exposed.tolist())] == _summed(cost, schedule)
    assert cost.waits(schedule).tolist() == inside.exposed.tolist()


def test_stages_of_as_many_layers_with_other_windows_are_not_alike() -> None:
    """Every sixth layer of this model sees all keys, so that a stage of two layers has one of them
    or none."""
    schedule = build("1f1b", devices=13, microbatches=2)
    wide = model("gemma3-1b")
    workload = Workload(wide, ((8192,),) * 2, (2,) * 13)
    near = workload.windowed.tolist()
    assert {*near[1:-1]} == {1, 2}
    links = MeshLinks(MeshShape(sequence=4, ring=4), 13, hardware("h200"))
    cost = CellCost.on_mesh(workload, schedule, links)
    assert cost.inside(schedule).total.tolist() == [total for total, _ in _summed(cost, schedule)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_rows_of_one_sort_are_of_one_kind_stage_and_slice(name: str) -> None:
    schedule = SCHEDULES[name]
    table, slices = schedule.table, schedule.shape.slices
    sorts = alike_rows(schedule, alike_units(((64,) * slices[0],) * len(slices)).numbers)
    without = schedule.unit < 0
    columns = (table.kind, table.stage, np.where(without, slices[0], table.slice))
    keys = [*zip(*(column.tolist() for column in columns))]
    of_sort = [*zip(sorts.kind.tolist(), sorts.stage.tolist(), sorts.alike.tolist())]
    assert [of_sort[sort] for sort in sorts.of_row.tolist()] == keys
    assert [keys[row] for row in sorts.first.tolist()] == of_sort
    assert len({*of_sort}) == len(of_sort)


def test_sorts_are_found_anew_for_other_units() -> None:
    schedule = SCHEDULES["sliced"]
    same, other = ((64, 32),) * 4, ((64, 32), (48, 48), (64, 32), (48, 48))
    few, more = (alike_rows(schedule, alike_units(each).numbers) for each in (same, other))
    every = alike_rows(schedule, single_units(same).numbers)
    assert len(few.first) < len(more.first) < len(every.first)
    assert alike_units(other).places == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert alike_units(other).lengths == ((64,), (64, 32), (48,), (48, 48))
    assert alike_units(other).first == (0, 1, 2, 3, 8)

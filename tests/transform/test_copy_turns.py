"""Copies that are made as columns are those that windows give, op by op."""

from fractions import Fraction

import pytest

from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.errors import PenstockError
from penstock.schedules import build, registry
from penstock.transform import add_copies, offload_stages
from penstock.transform._blocks import item_numbers
from penstock.transform.offload import Window, Windows

SIZES = ((2, 4, None, None), (4, 8, None, None), (4, 8, 2, None), (4, 8, None, 4), (2, 8, 4, 4))


def _orders(name: str) -> list[Schedule]:
    found = []
    for devices, microbatches, chunks, slices in SIZES:
        sizes = {"devices": devices, "microbatches": microbatches}
        try:
            found.append(build(name, **sizes, chunks=chunks, slices=slices))
        except PenstockError:  # it has no chunks to choose, or no slices
            continue
    return found


def _windows(schedule: Schedule, stages: set[int], lead: int) -> tuple[Windows, Windows]:
    """Those of all compute ops, one turn each, and of copies that have so many turns."""
    table, turns = schedule.table, item_numbers(schedule).tolist()
    computing = [table.lane_stream[lane] == "compute" for lane in table.lane]
    places = {
        table.op(row): Window(turn, turn + 1) for row, turn in enumerate(turns) if computing[row]
    }
    copies: dict[Op, Window] = {}
    for op, (turn, _) in places.items():
        written = places.get(op._replace(kind="F"))
        needs = op.kind in "BI" and op.stage in stages
        if needs and written is not None and turn - written.end >= 2 * lead:
            copies[op._replace(kind="O")] = Window(written.end, written.end + lead)
            copies[op._replace(kind="L")] = Window(turn - lead, turn)
    return places, copies


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(registry()))
def test_columns_and_windows_give_the_same_schedule(name: str) -> None:
    for schedule in _orders(name):
        if schedule.gangs or "copy" in schedule.table.lane_stream:
            continue
        last = schedule.shape.stages - 1
        for stages, lead in (({*range(last + 1)}, 2), ({0, last}, 1)):
            places, copies = _windows(schedule, stages, lead)
            share = Fraction(1, lead)
            found = offload_stages(schedule, stages, lead=lead, share=share)
            if not copies:
                assert found == schedule.renamed("")
                continue
            wanted = add_copies(schedule, {**places, **copies}, shares=dict.fromkeys(copies, share))
            assert found == wanted
            assert (found.name, found.after, found.shares) == (
                wanted.name,
                wanted.after,
                wanted.shares,
            )

"""One host starts the ops of all streams: nothing before what it waits for, copies at once."""

from itertools import permutations

import numpy as np
import pytest

from core.samples import every
from penstock.core.graph import graph_of
from penstock.core.host_order import HOST_COPIES, host_order
from penstock.core.schedule import Schedule
from penstock.schedules import build


def _waits_for(schedule: Schedule, row: int) -> list[int]:
    """What a row waits for: the row before it in its lane, and those that write what it reads."""
    table, graph = schedule.table, graph_of(schedule)
    first = table.lane_start[table.lane[row]]
    writers: list[int] = graph.writer[graph.start[row] : graph.start[row + 1]].tolist()
    return writers + [row - 1] * bool(row > first)


@pytest.mark.long
@every
def test_nothing_is_started_before_what_it_waits_for(schedule: Schedule) -> None:
    for device in range(schedule.shape.devices):
        place = {row: at for at, row in enumerate(host_order(schedule, device).tolist())}
        for row in place:
            earlier = [each for each in _waits_for(schedule, row) if each in place]
            assert all(place[each] < place[row] for each in earlier)


@pytest.mark.parametrize("name", ["sppo", "stp-offload"])
def test_no_op_stands_between_a_copy_and_what_it_waits_for(name: str) -> None:
    schedule = build(name, devices=4, microbatches=16)
    table, copies = schedule.table, schedule.table.of_kinds(HOST_COPIES)
    partners = {one: other for pair in schedule.pairs for one, other in permutations(pair)}
    for device in range(4):
        order = host_order(schedule, device).tolist()
        for at in np.flatnonzero(copies[order]).tolist():
            last = max(order.index(row) for row in _waits_for(schedule, order[at]))
            between = {table.op(row) for row in order[last + 1 : at] if not copies[row]}
            assert between <= {partners.get(table.op(order[last]))}


def test_copies_behind_a_load_are_started_with_it() -> None:
    schedule = build("stp-offload", devices=4, microbatches=16)
    order = schedule.table.ops_at(host_order(schedule, 3).tolist())
    text = " ".join(map(str, order))
    assert "3F6 3F7 3L0 3O6 3O7 4F4 4B0" in text

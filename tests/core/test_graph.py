"""The vectorised graph says the same as the readable table, op by op."""

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np

from core.samples import every
from penstock.core import kernel
from penstock.core.buffers import BUFFERS, COLLECTIVE, Buf
from penstock.core.gangs import gangs_of
from penstock.core.graph import graph_of, reads_of
from penstock.core.lifetimes import uses_of
from penstock.core.meaning import reads, writes
from penstock.core.ops import STAGE_KINDS
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.core.transfers import moves_of

HELP = ("lent", "returned")
"""What devices exchange that share the attention of an op."""


def edges_by_object(schedule: Schedule) -> Counter[tuple[int, int, str]]:
    """(reader row, writer row, buffer) of every read, resolved one op at a time."""
    away = {row for gang in gangs_of(schedule) for row in gang.helpers}
    rows = [(row, op) for row, op in enumerate(schedule.table.ops()) if row not in away]
    writers: dict[Buf, list[int]] = defaultdict(list)
    for row, op in rows:
        for buf in writes(op, schedule.shape):
            writers[buf].append(row)

    return Counter(
        (row, writers[buf][0], buf.name if buf.name != "back" else "act")
        for row, op in rows
        if op.kind not in STAGE_KINDS
        for buf in reads(op, schedule.shape, frozenset(writers))
        if BUFFERS[buf.name].per != "home" and buf.name != "keep"
        if not (op.kind == "W" and buf.name == "back")  # it reads what is kept, loaded back
    )


@every
def test_the_two_ways_to_read_the_table_agree(schedule: Schedule) -> None:
    bare = replace(schedule, after=(), loans=(), derived={})
    graph = reads_of(bare)
    found = Counter(
        (int(graph.reader[edge]), int(graph.writer[edge]), graph.name(edge))
        for edge in range(len(graph.reader))
        if graph.name(edge) != "keep" or graph.writer[edge] < 0
    )
    expected = edges_by_object(bare)
    assert {edge for edge in found if edge[2] not in ("keep", *HELP)} == set(expected)


@every
def test_the_graph_keeps_just_the_reads_that_lane_order_leaves_open(schedule: Schedule) -> None:
    """And the parts of collectives, which are there only some time after the last of them."""
    bare = replace(schedule, after=(), derived={})
    lane, graph, whole = bare.table.lane, graph_of(bare), reads_of(bare)
    every_read = {(int(r), int(w)) for r, w in zip(whole.reader, whole.writer)}
    parts = {
        (int(graph.reader[edge]), int(graph.writer[edge]))
        for edge in range(len(graph.reader))
        if BUFFERS[graph.name(edge)].collective
    }
    satisfied = {(r, w) for r, w in every_read if lane[r] == lane[w] and w < r}
    kept = {(int(r), int(w)) for r, w in zip(graph.reader, graph.writer)}
    assert kept == (every_read - satisfied) | parts


@every
def test_both_ends_of_a_loan_and_members_of_a_gang_read_from_each_other(schedule: Schedule) -> None:
    graph, rows = graph_of(schedule), schedule.table.rows_by_op
    found = {
        (int(graph.reader[edge]), int(graph.writer[edge]), graph.name(edge))
        for edge in range(len(graph.reader))
        if graph.name(edge) in HELP
    }
    expected = set()
    for loan in schedule.loans:
        heavy, light = rows[loan.heavy][0], rows[loan.light][0]
        expected |= {(light, heavy, "lent"), (heavy, light, "returned")}
    for home, helpers in gangs_of(schedule):
        expected |= {(row, home, "lent") for row in helpers}
        expected |= {(home, row, "returned") for row in helpers}
    assert found == expected


@every
def test_transfers_are_the_reads_from_other_devices_once_per_receiver(schedule: Schedule) -> None:
    device, graph, moves = schedule.table.device, graph_of(schedule), moves_of(schedule)
    expected = {
        (int(w), graph.name(edge), int(device[r]))
        for edge, (r, w) in enumerate(zip(graph.reader, graph.writer))
        if device[r] != device[w] and graph.name(edge) not in ("after", *COLLECTIVE)
    }
    found = [
        (int(moves.writer[move]), moves.payload(move), int(device[moves.reader[move]]))
        for move in range(len(moves.writer))
    ]
    assert len(found) == len(set(found))
    assert set(found) == expected


@every
def test_compiled_and_plain_loops_give_the_same(schedule: Schedule, monkeypatch) -> None:
    plain = replace(schedule, derived={})
    compiled = replace(schedule, derived={})
    by_plain = (graph_of(plain), moves_of(plain), uses_of(plain))
    with monkeypatch.context() as patch:
        patch.setattr(kernel, "COMPILE_ABOVE", 0)
        by_compiled = (graph_of(compiled), moves_of(compiled), uses_of(compiled))
    for one, other in zip(by_plain[:2], by_compiled[:2]):
        for name in vars(one):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert all(map(np.array_equal, by_plain[2], by_compiled[2]))


def test_skip_edges_with_a_common_end_are_transfers_of_their_own() -> None:
    """The gradients that stage 3 sends to stages 0 and 1 differ, though both live on device 0."""
    shape = Shape(2, 4, (1,), skips=((0, 3), (1, 3)))
    lanes = [
        [("F", 0, 0, 0), ("F", 1, 0, 0), ("B", 1, 0, 0), ("B", 0, 0, 0)],
        [("F", 2, 0, 0), ("F", 3, 0, 0), ("B", 3, 0, 0), ("B", 2, 0, 0)],
    ]
    schedule = Schedule.of("skips", shape, lanes)
    moves = moves_of(schedule)
    back = [
        (str(schedule.table.op(int(moves.writer[move]))), str(schedule.table.op(int(reader))))
        for move, reader in enumerate(moves.reader)
        if moves.payload(move) == "dskip"
    ]
    assert back == [("3B0", "1B0"), ("3B0", "0B0")]

"""Every loop that plays an order against a clock gives what the clock of the graph gives.

That one (core/scoreboard.py) derives each wait from the meaning table. The others exist for their
speed or because they choose while they play (docs/decisions/0027).
"""

from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.check import require
from penstock.core.graph import graph_of
from penstock.core.lifetimes import level_changes
from penstock.core.schedule import Lanes, Schedule
from penstock.core.scoreboard import play_schedule
from penstock.core.shape import Shape
from penstock.cost.model import UnitCost
from penstock.schedules import Case
from penstock.schedules.generators import v_orders, zb_v_search
from penstock.schedules.generators.board import Board
from penstock.schedules.generators.grid import SlotGrid
from penstock.schedules.generators.v_blocks import v_blocks
from penstock.search.joint.list_scheduler import Policy, list_schedule
from penstock.search.joint.pipeline import Order, Pipeline
from penstock.search.joint.polish import replay
from penstock.search.offload.run_ahead import Lookahead
from penstock.sim import engine, memory
from penstock.sim.plain import is_plain, play_plain
from schedules.generators.constructed import Row, rows
from search.joint.test_list_scheduler import pipelines


class Reference(NamedTuple):
    """What the clock of the graph says."""

    end: NDArray[np.int64]
    peak: list[int]
    stuck: bool


def reference(pipeline: Pipeline, order: Order) -> Reference:
    shape = Shape(
        pipeline.devices, len(pipeline.device), (pipeline.slices,) * pipeline.microbatches
    )
    schedule = Schedule.of("order", shape, order.lanes(pipeline))
    table, graph = schedule.table, graph_of(schedule)
    far = table.device[graph.reader] != table.device[graph.writer]
    done = play_schedule(
        schedule, pipeline.time[order.kind, order.stage], far * np.int64(pipeline.hop)
    )
    sizes = {"act": pipeline.act[table.stage], "stash": pipeline.stash[table.stage]}
    return Reference(done.end, _peaks(schedule, sizes), done.stuck(schedule))


def _peaks(schedule: Schedule, sizes: dict[str, NDArray[np.int64]]) -> list[int]:
    """The highest level along each lane."""
    steps = np.stack(level_changes(schedule, sizes), axis=1)
    bounds = schedule.table.lane_start.tolist()
    lanes = [steps[a:b].ravel() for a, b in pairwise(bounds)]
    return [int(np.cumsum(lane).max(initial=0)) for lane in lanes]


@st.composite
def orders(draw: st.DrawFn) -> tuple[Pipeline, Policy]:
    """A pipeline of any costs, split or not, and any urgencies to list it by."""
    pipeline = draw(pipelines())
    pipeline = draw(st.sampled_from([pipeline, pipeline.fused]))
    size = pipeline.time.size
    keys = draw(st.lists(st.integers(-20, 20), min_size=size, max_size=size))
    offset = np.array(keys, np.float64).reshape(pipeline.time.shape)
    return pipeline, Policy(offset, float(draw(st.integers(0, 9))))


@settings(max_examples=100, deadline=None)
@given(orders())
def test_the_list_scheduler_and_the_fast_clock(case: tuple[Pipeline, Policy]) -> None:
    pipeline, policy = case
    listed = list_schedule(pipeline, policy)
    assert listed is not None
    played, expected = replay(pipeline, listed.order), reference(pipeline, listed.order)
    assert not expected.stuck
    assert played.end.tolist() == expected.end.tolist()
    assert played.peak.tolist() == expected.peak
    assert listed.makespan == played.makespan == expected.end.max()


@settings(max_examples=100, deadline=None)
@given(orders(), st.lists(st.integers(1, 10**6), max_size=40))
def test_the_fast_clock_stops_where_the_graph_does(
    case: tuple[Pipeline, Policy], swaps: list[int]
) -> None:
    """Exchanges of neighbours, as polishing makes them, lead to orders that cannot run too."""
    pipeline, policy = case
    listed = list_schedule(pipeline, policy)
    assert listed is not None
    kind, stage, turn, start = (column.copy() for column in listed.order)
    for swap in swaps:
        row = swap % len(kind)
        same = kind[row] == kind[row - 1] and stage[row] == stage[row - 1]
        if row not in start and not same:
            for column in (kind, stage, turn):
                column[[row - 1, row]] = column[[row, row - 1]]
    order = Order(kind, stage, turn, start)
    played, expected = replay(pipeline, order), reference(pipeline, order)
    assert (played.makespan == -1) == expected.stuck
    if not expected.stuck:
        assert played.end.tolist() == expected.end.tolist()
        assert played.peak.tolist() == expected.peak


FRACTIONS = st.fractions(0, 5, max_denominator=6)


@settings(max_examples=60, deadline=None)
@given(orders(), st.tuples(*[FRACTIONS] * 3), FRACTIONS, st.tuples(*[FRACTIONS] * 2), st.data())
def test_the_common_case_of_the_simulator(
    case: tuple[Pipeline, Policy],
    times: tuple[Fraction, ...],
    hop: Fraction,
    sizes: tuple[Fraction, ...],
    data: st.DataObject,
) -> None:
    """With shares of stages and of slices, so that no two ops need cost the same."""
    pipeline, policy = case
    listed = list_schedule(pipeline, policy)
    assert listed is not None
    stages, m, k = len(pipeline.device), pipeline.microbatches, pipeline.slices
    share = st.fractions(Fraction(1, 4), 2, max_denominator=4)
    shape = Shape(
        pipeline.devices, stages, (k,) * m,
        stage_share=tuple(data.draw(share) for _ in range(stages)),
        slice_share=(tuple(data.draw(share) for _ in range(k)),) * m,
    )  # fmt: skip
    schedule = Schedule.of("order", shape, listed.order.lanes(pipeline))
    cost = UnitCost(dict(zip("FIW", times)), hop=hop, sizes=dict(zip(("act", "stash"), sizes)))
    require(schedule)
    assert is_plain(schedule, cost)
    end, peak, tick, grain = play_plain(schedule, cost)
    done, graph_tick = engine.play(schedule, cost, "together")
    graph_peak, graph_grain = memory.peaks(schedule, cost, done)
    assert [e * tick for e in end.tolist()] == [e * graph_tick for e in done.end.tolist()]
    assert [p * grain for p in peak.tolist()] == [p * graph_grain for p in graph_peak.tolist()]


WHOLE = st.integers(0, 6)


@pytest.mark.matrix
@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 9), st.tuples(*[WHOLE] * 3), WHOLE, st.tuples(*[WHOLE] * 2)
)
def test_the_search_over_v_shaped_blocks(
    p: int, m: int, times: tuple[int, ...], hop: int, sizes: tuple[int, ...]
) -> None:
    """Some orders of every step of reordering, which are priced many at a time."""
    prices = v_orders.Prices.of(
        tuple(map(Fraction, times)), tuple(map(Fraction, sizes)), Fraction(hop)
    )
    for found in v_orders.block_orders(v_blocks(p)[::7], 0, m):
        played = v_orders.play_grid(found.grid, m, prices)
        for number in np.flatnonzero(played.works)[:2]:
            lanes = v_orders.schedule_lanes(found.grid[number])
            end, start, peak = _on_the_graph(Shape.even(p, m, 2), lanes, times, hop, sizes)
            assert played.span[number] == max(e[-1] - s[0] for e, s in zip(end, start))
            assert played.peak[number] == max(peak)


def _on_the_graph(
    shape: Shape, lanes: Lanes, times: tuple[int, ...], hop: int, sizes: tuple[int, ...]
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Ends, starts and peaks of each device, where all stages are equal: times of F, I and W."""
    schedule = Schedule.of("order", shape, lanes)
    table, graph = schedule.table, graph_of(schedule)
    length = np.array([dict(zip("FIW", times))[op.kind] for op in table.ops()], np.int64)
    far = table.device[graph.reader] != table.device[graph.writer]
    done = play_schedule(schedule, length, far * np.int64(hop))
    assert not done.stuck(schedule)
    amounts = {name: np.full(len(table), size) for name, size in zip(("act", "stash"), sizes)}
    bounds = table.lane_start.tolist()
    of_lane = [slice(a, b) for a, b in pairwise(bounds)]
    ends, starts = (
        [column[lane].tolist() for lane in of_lane] for column in (done.end, done.start)
    )
    return ends, starts, _peaks(schedule, amounts)


@settings(max_examples=60, deadline=None)
@given(rows)
def test_the_board_of_the_constructors(row: Row) -> None:
    budget = row.budget(4 * row.p + 2 * (row.alive - 1))
    v = zb_v_search._improved(row.p, row.m, budget, zb_v_search.DelaySwitches(*row.switches[:2]))
    for board, chunks in ((row.construct(), 1), (v, 2)):
        shape = Shape.even(row.p, row.m, chunks)
        end, start, peak = _on_the_graph(shape, board.lanes, row.times, row.hop, (2, 1))
        assert board.clock == [lane[-1] for lane in end]
        assert board.idle == [_idle(*lane) for lane in zip(start, end)]
        assert _placed(board) == _ends(board.lanes, end)
        assert max(peak) <= board.budget.limit


def _idle(start: list[int], end: list[int]) -> int:
    return sum(later - earlier for earlier, later in zip(end, start[1:]))


def _placed(board: Board) -> dict[tuple[str, int, int], int]:
    ends = {"F": board.forward, "I": board.backward}
    return {
        (kind, stage, mb): end
        for kind, stages in ends.items()
        for stage, column in enumerate(stages)
        for mb, end in enumerate(column)
    }


def _ends(lanes: Lanes, end: list[list[int]]) -> dict[tuple[str, int, int], int]:
    pairs = [pair for lane, ends in zip(lanes, end) for pair in zip(lane, ends)]
    return {op[:3]: at for op, at in pairs if op[0] in "FI"}  # type: ignore[misc, index]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 8), st.integers(2, 3), st.integers(1, 5), st.data())
def test_recompute_that_runs_ahead(p: int, m: int, v: int, ahead: int, data: st.DataObject) -> None:
    """Its plan may idle until a device wakes, but takes nothing to be there before it is."""
    f, b, hop = (Fraction(data.draw(st.integers(least, 6))) for least in (1, 1, 0))
    grid = SlotGrid.of(Case(p, m, v=v, F=f, I=b, W=Fraction(0), hop=hop))
    recomputed = data.draw(st.integers(1, v - 1))
    board = Lookahead(grid, m, recomputed, v * p + ahead)
    schedule = Schedule.of("ahead", Shape.even(p, m, v), board.run())
    table, graph = schedule.table, graph_of(schedule)
    require(schedule)
    length = np.array([grid.B if op.kind == "B" else grid.F for op in table.ops()], np.int64)
    far = table.device[graph.reader] != table.device[graph.writer]
    planned = [
        board.ends["F" if op.kind == "N" else op.kind][op.stage][op.mb] for op in table.ops()
    ]
    end = np.array(planned, np.int64)
    start = end - length
    assert (start[graph.reader] >= end[graph.writer] + far * grid.hop).all()
    assert (play_schedule(schedule, length, far * np.int64(grid.hop)).end <= end).all()

"""The clock: exact sums, latency, links, lock-step, explicit order, in both loops."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.samples import every, plain
from penstock.core import kernel
from penstock.core.buffers import COLLECTIVE
from penstock.core.graph import graph_of
from penstock.core.ops import Op
from penstock.core.schedule import After, Draft, Loan, Schedule
from penstock.core.shape import Shape
from penstock.cost.model import Link, UnitCost
from penstock.errors import ScheduleError, ShapeError
from penstock.schedules import build
from penstock.sim import engine, simulate

TIMES = {"F": Fraction(3), "I": Fraction(7, 2), "W": Fraction(5, 3)}


def general(schedule: Schedule, cost: UnitCost, monkeypatch):
    """The timeline from the general graph, where the plain loop would also do."""
    with monkeypatch.context() as patch:
        patch.setattr(engine, "is_plain", lambda schedule, cost: False)
        return simulate(schedule, cost)


@pytest.mark.long
@plain
def test_the_plain_loop_and_the_graph_give_the_same(schedule, monkeypatch) -> None:
    for hop in (Fraction(0), Fraction(1, 3)):
        cost = UnitCost(times=TIMES, hop=hop, sizes={"act": Fraction(2), "stash": Fraction(5, 4)})
        one = simulate(schedule, cost)
        other = general(schedule, cost, monkeypatch)
        assert one.makespan == other.makespan, hop
        assert one.peak == other.peak, hop
        assert one.spans() == other.spans(), hop


@every
def test_compiled_and_plain_python_give_the_same(schedule, monkeypatch) -> None:
    cost = UnitCost(times=TIMES, hop=Fraction(1, 2))
    one = simulate(schedule, cost)
    with monkeypatch.context() as patch:
        patch.setattr(kernel, "COMPILE_ABOVE", 0)
        other = simulate(replace(schedule, derived={}), cost)
    assert one.spans() == other.spans()
    assert one.peak == other.peak


@every
def test_every_op_starts_at_the_latest_of_what_it_waits_for(schedule) -> None:
    """The definition itself, op by op: nothing starts early, nothing waits without a reason."""
    hop = Fraction(1, 4)
    timeline = simulate(schedule, UnitCost(times=TIMES, hop=hop))
    graph, table = graph_of(schedule), schedule.table
    start, end = (
        [int(t) * timeline.tick for t in column] for column in (timeline.start, timeline.end)
    )
    group = {}
    loans = [loan[:2] for loan in schedule.loans]
    for together in (*schedule.pairs, *((op,) for op in schedule.gangs), *loans):
        rows = {row for op in together for row in table.rows_by_op[op]}
        rows |= {other for row in rows for other in group.get(row, ())}
        group |= dict.fromkeys(rows, tuple(sorted(rows)))
    for row in range(len(table)):
        ready = []
        for member in group.get(row, (row,)):
            first = table.position(member) == 0
            if not first and member - 1 not in group.get(row, ()):
                ready.append(end[member - 1])
            for edge in range(graph.start[member], graph.start[member + 1]):
                writer = int(graph.writer[edge])
                if writer not in group.get(row, ()):
                    remote = table.device[writer] != table.device[member]
                    far = remote and graph.name(edge) != "after"
                    joined = graph.name(edge) in COLLECTIVE and schedule.shape.devices > 1
                    ready.append(end[writer] + (hop if far or joined else 0))
        assert start[row] == max(ready, default=0)


@given(
    st.tuples(*(st.fractions(0, 5, max_denominator=8) for _ in range(3))),
    st.fractions(0, 2, max_denominator=6),
)
@settings(max_examples=30, deadline=None)
def test_a_pipeline_of_one_microbatch_takes_the_sum_of_its_chain(times, hop) -> None:
    cost = UnitCost(times=dict(zip("FIW", times)), hop=hop)
    timeline = simulate(build("1f1b", devices=3, microbatches=1), cost)
    assert timeline.makespan == 3 * sum(times) + 4 * hop


def test_one_link_may_be_slower_than_the_others() -> None:
    schedule = build("1f1b", devices=3, microbatches=1)
    slow = UnitCost(links={(0, 1): Link(latency=Fraction(5))})
    assert simulate(schedule, slow).makespan == 9 + 5


def test_transfers_queue_for_their_link() -> None:
    """Two microbatches of 8 bytes at 1/4 per byte: the second waits until the first is through."""
    shape = Shape(2, 2, (1, 1), boundary_bytes=(8,))
    lanes = [
        [("F", 0, 0, 0), ("F", 0, 1, 0), ("B", 0, 0, 0), ("B", 0, 1, 0)],
        [("F", 1, 0, 0), ("F", 1, 1, 0), ("B", 1, 0, 0), ("B", 1, 1, 0)],
    ]
    timeline = simulate(Schedule.of("queue", shape, lanes), UnitCost(per_byte=Fraction(1, 4)))
    forward = [
        (start * timeline.tick, end * timeline.tick)
        for start, end, payload in zip(
            timeline.transfers.start.tolist(),
            timeline.transfers.end.tolist(),
            timeline.transfers.payload,
        )
        if payload == "x"
    ]
    assert forward == [(1, 3), (3, 5)]


def test_the_time_of_a_byte_may_be_much_shorter_than_that_of_an_op() -> None:
    shape = Shape(2, 2, (3,), boundary_bytes=(7,))
    lanes = [
        [(kind, d, 0, s) for kind, order in (("F", (0, 1, 2)), ("B", (2, 1, 0))) for s in order]
        for d in (0, 1)
    ]
    timeline = simulate(Schedule.of("fine", shape, lanes), UnitCost(per_byte=Fraction(1, 1000)))
    assert timeline.makespan == Fraction(4 * 3, 3) + Fraction(2 * 7, 3000)


def test_per_op_times_replace_the_time_of_the_kind() -> None:
    schedule = build("1f1b", devices=2, microbatches=1)
    cost = UnitCost(op_times={Op("F", 1, 0): Fraction(7, 3)})
    assert simulate(schedule, cost).makespan == 1 + Fraction(7, 3) + 2 + 2


def test_an_after_holds_an_op_back_across_devices() -> None:
    shape = Shape.even(2, 2)
    lanes = [[(kind, d, mb, 0) for kind in "FB" for mb in (0, 1)] for d in (0, 1)]
    free = simulate(Schedule.of("free", shape, lanes))
    held = simulate(
        Schedule.of("held", shape, Draft(lanes, after=(After(Op("F", 0, 1), Op("F", 1, 0)),)))
    )
    starts = {str(span.op): span.start for span in held.spans()}
    assert starts["0F1"] == 2
    assert free.makespan < held.makespan


def test_a_loan_runs_two_ops_in_lock_step_and_moves_work() -> None:
    """The heavy op lends two of its past slices: 4 - 2 against 1 + 2, both end at the later."""
    shape = Shape(2, 2, (1, 3), slice_share=((Fraction(1),), (Fraction(1),) * 3))
    forwards = [Op("F", 0, 1, s) for s in range(3)]
    lanes = [
        [*forwards, Op("F", 0, 0), Op("B", 0, 0), *(Op("B", 0, 1, s) for s in (2, 1, 0))],
        [*(op._replace(stage=1) for op in forwards), Op("F", 1, 0), Op("B", 1, 0)]
        + [Op("B", 1, 1, s) for s in (2, 1, 0)],
    ]
    loan = Loan(Op("F", 1, 1, 2), Op("F", 0, 0), 2)
    cost = UnitCost(
        op_times={Op("F", 1, 1, 2): Fraction(4), Op("F", 0, 0): Fraction(1)}, lent_slice=Fraction(1)
    )
    timeline = simulate(Schedule.of("loan", shape, Draft(lanes, loans=(loan,))), cost)
    spans = {span.op: span for span in timeline.spans()}
    heavy, light = spans[loan.heavy], spans[loan.light]
    assert heavy.start == light.start
    assert heavy.end == light.end == heavy.start + 3


def test_release_comes_before_allocation_at_equal_times() -> None:
    timeline = simulate(build("1f1b", devices=1, microbatches=3))
    assert timeline.peak == (1,)


def test_kept_inputs_and_recompute_are_counted() -> None:
    shape = Shape.even(1, 2)
    lane = [(kind, 0, mb, 0) for mb in (0, 1) for kind in "N"]
    lane += [(kind, 0, mb, 0) for mb in (0, 1) for kind in "RB"]
    timeline = simulate(
        Schedule.of("recompute", shape, [lane]), UnitCost(sizes={"ckpt": Fraction(1, 8)})
    )
    assert timeline.makespan == 2 * (1 + 1 + 2)
    assert timeline.peak == (1 + Fraction(2, 8),)


def test_only_a_proven_schedule_is_timed() -> None:
    good = build("1f1b", devices=2, microbatches=2)
    lanes = [(device, stream, ops[::-1]) for device, stream, ops in good.table.lanes()]
    with pytest.raises(ScheduleError):
        simulate(Schedule.from_lanes("backwards", good.shape, lanes))


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"times": {"B": Fraction(2)}}, "B is I [+] W"),
        ({"times": {"F": Fraction(-1)}}, "negative"),
        ({"sizes": {"actt": Fraction(1)}}, "did you mean 'act'"),
    ],
)
def test_costs_that_make_no_sense_are_refused(fields: dict, word: str) -> None:
    with pytest.raises(ShapeError, match=word):
        UnitCost(**fields)


def test_large_and_small_ticks_agree() -> None:
    """Ends are kept narrow where they fit; times too long for that must not wrap around."""
    schedule = build("seq1f1b", devices=4, microbatches=8, slices=4)
    unit = simulate(schedule)
    huge = simulate(schedule, UnitCost(times=dict.fromkeys("FIW", Fraction(10**9))))
    assert huge.makespan == unit.makespan * 10**9
    assert unit.end.dtype == np.int32
    assert huge.end.dtype == np.int64


@pytest.mark.parametrize("hop", [Fraction(0), Fraction(1, 7**20)])
def test_times_too_fine_to_be_summed_exactly_are_refused(hop) -> None:
    schedule = build("seq1f1b", devices=2, microbatches=4, slices=2)
    times = {"F": Fraction(1, 10**9 + 7), "I": Fraction(1, 10**9 + 9)}
    with pytest.raises(ShapeError, match="fewer digits"):
        simulate(schedule, UnitCost(times=times, hop=hop))


@every
def test_ops_that_take_no_time_still_need_their_memory(schedule) -> None:
    for still in ("F", "I", "W", "FIW"):
        cost = UnitCost(times=dict.fromkeys(still, Fraction(0)), sizes={"dkv": Fraction(1)})
        timeline = simulate(schedule, cost)
        highest = [int(curve.level.max(initial=0)) * timeline.grain for curve in timeline.curves]
        assert tuple(highest) == timeline.peak, still
        assert min(timeline.peak) > 0, still


@pytest.mark.parametrize(
    "fields",
    [
        {"sizes": {"act": Fraction(2**62)}},
        {"sizes": {"act": Fraction(2**30)}, "times": {"F": Fraction(1, 3**25)}},
        {
            "times": dict.fromkeys("FIW", Fraction(512)),
            "op_times": {Op("F", 0, 0): Fraction(1, 3**25)},
        },
        {"per_byte": Fraction(2**60)},
    ],
)
def test_what_cannot_be_summed_exactly_is_refused_and_never_wraps(fields: dict) -> None:
    shape = Shape(2, 2, (1, 1), boundary_bytes=(8,), stage_share=(Fraction(1), Fraction(1, 2**30)))
    lanes = [[(kind, device, mb, 0) for kind in "FB" for mb in (0, 1)] for device in (0, 1)]
    with pytest.raises(ShapeError, match="fewer digits"):
        simulate(Schedule.of("fine", shape, lanes), UnitCost(**fields))


def test_large_sizes_are_counted_exactly() -> None:
    timeline = simulate(
        build("1f1b", devices=2, microbatches=2), UnitCost(sizes={"act": Fraction(2**40 + 1)})
    )
    assert timeline.peak == (2 * (2**40 + 1), 2**40 + 1)


@pytest.mark.parametrize("per_byte", [Fraction(3, 10**7), Fraction(6, 10**7), Fraction(1, 7**9)])
def test_occupancy_is_never_rounded_to_whole_ops(per_byte: Fraction) -> None:
    shape = Shape(2, 2, (1,), boundary_bytes=(10**6,))
    lanes = [[("F", device, 0, 0), ("B", device, 0, 0)] for device in (0, 1)]
    timeline = simulate(Schedule.of("far", shape, lanes), UnitCost(per_byte=per_byte))
    assert abs(timeline.makespan - (6 + 2 * 10**6 * per_byte)) < Fraction(1, 10**9)


@pytest.mark.parametrize(
    "fields",
    [
        {"hop": Fraction(-1)},
        {"per_byte": Fraction(-1)},
        {"communication": Fraction(-1)},
        {"links": {(0, 1): Link(Fraction(-1))}},
        {"op_times": {Op("F", 0, 0): Fraction(-1)}},
    ],
)
def test_negative_costs_are_refused(fields: dict) -> None:
    with pytest.raises(ShapeError, match="negative"):
        UnitCost(**fields)


def test_a_time_for_an_op_that_is_not_there_is_refused() -> None:
    cost = UnitCost(op_times={Op("F", 7, 0): Fraction(1)})
    with pytest.raises(ShapeError, match="7F0, which is in no lane"):
        simulate(build("1f1b", devices=2, microbatches=2), cost)


@pytest.mark.parametrize("tenth", [0.1, "0.1", "1/10"])
def test_numbers_mean_what_their_digits_say(tenth) -> None:
    schedule = build("1f1b", devices=2, microbatches=2)
    exact = simulate(schedule, UnitCost(hop=Fraction(1, 10))).makespan
    assert simulate(schedule, UnitCost(hop=tenth)).makespan == exact > 9


@pytest.mark.parametrize("word", ["fast", "1/0", float("nan"), float("inf"), None])
def test_what_is_not_a_number_is_refused(word) -> None:
    with pytest.raises(ShapeError, match="is not a number"):
        UnitCost(times={"F": word})


def test_an_unknown_delivery_of_strands_is_refused() -> None:
    with pytest.raises(ShapeError, match="strands is 'appart'") as caught:
        simulate(build("1f1b", devices=2, microbatches=2), strands="appart")
    assert "'apart'" in caught.value.hint

"""A lane knows where everything is, waits for what it reads, and frees all that it holds."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from time import process_time

import pytest

from loops import each
from penstock.core.buffers import ALL, BUFFERS
from penstock.core.graph import graph_of
from penstock.core.host_order import host_order
from penstock.core.loans import GangShare
from penstock.core.ops import STREAMS
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.core.table import LETTERS
from penstock.errors import RunError
from penstock.lower import lower
from penstock.run.execute.handlers import HANDLERS
from penstock.run.program.calls import DROPPED, NOTHING, Call, Lane, forward_lane
from penstock.run.program.compile import compile_lane
from penstock.run.program.places import READ, WRITE, names_of
from penstock.run.program.step_end import end_step
from penstock.run.program.unsupported import refuse_unsupported, why_not
from penstock.schedules import build, registry
from penstock.transform import recompute_all
from penstock.verify.cases import smallest

pytestmark = [pytest.mark.torch, pytest.mark.long]

every = each("name", list(registry()))


@cache
def built(name: str) -> Schedule:
    """A schedule at its preferred size; one that cannot be run is skipped with the reason."""
    schedule = registry()[name].build(smallest(registry()[name]))
    if reason := why_not(schedule):
        pytest.skip(reason)
    return schedule


@cache
def lanes_of(name: str, *, ended: bool = False) -> list[Lane]:
    """The lanes of all devices; `ended` has a step's end over replicas, with tied weights."""
    schedule = built(name)
    if ended:
        last = schedule.shape.stages - 1
        schedule = end_step(schedule, reduced=True, ties=((0, last),))
    program = lower(schedule)
    return [compile_lane(program, device) for device in range(schedule.shape.devices)]


def place(call: Call, name: str, side: int) -> int:
    """Where a call has the buffer of that name."""
    places = call.reads if side == READ else call.writes
    return places[names_of(call.op.kind, side).index(name)]


def _received(lane: Lane) -> list[int]:
    """Tags of the receives that a lane posts."""
    return [post.tag for post in lane.first] + [p.tag for call in lane.calls for p in call.posts]


@every
def test_every_op_stands_once_in_the_order_of_its_lane(name: str) -> None:
    table = built(name).table
    rows = [call.row for lane in lanes_of(name) for call in lane.calls]
    assert sorted(rows) == list(range(len(table)))
    for lane in lanes_of(name):
        for stream in STREAMS:
            own = [call.row for call in lane.calls if call.stream == stream]
            assert own == sorted(own)
        assert all(call.op == table.op(call.row) for call in lane.calls)


@every
@each("evaluation", [False, True], ids=["training", "evaluation"])
def test_every_transfer_is_sent_posted_and_awaited_once(name: str, evaluation: bool) -> None:
    lanes = [forward_lane(lane) if evaluation else lane for lane in lanes_of(name)]
    sent = Counter(post.tag for lane in lanes for call in lane.calls for post in call.sends)
    posted = Counter(tag for lane in lanes for tag in _received(lane))
    awaited = Counter(post.tag for lane in lanes for call in lane.calls for post in call.waits)
    assert sent == posted == awaited
    assert set(sent.values()) == {1}


@every
def test_a_receive_is_posted_before_it_is_awaited(name: str) -> None:
    for lane in lanes_of(name):
        posted = {post.tag for post in lane.first}
        for call in lane.calls:
            assert {post.tag for post in call.waits} <= posted
            posted |= {post.tag for post in call.posts}


def held_after(lane: Lane) -> set[int]:
    """Places that hold something when all calls have run; what a call reads must be held."""
    homes = set(lane.homes.values())
    held = {post.place for post in lane.first} | homes
    for call in lane.calls:
        assert set(call.reads) - {NOTHING} <= held, call
        held |= set(call.writes)
        assert {post.place for post in call.sends} <= held, call
        held -= set(call.frees)
        held -= {place for join in call.joins if not join.read for place in join.parts}
        held |= {post.place for post in call.posts}
    return held - homes - {NOTHING, DROPPED}


@each("again", [False, True], ids=["kept", "recomputed"])
@every
def test_what_a_place_holds_is_written_before_it_is_read_and_freed_after(
    name: str, again: bool
) -> None:
    schedule = built(name)
    if again and "O" in schedule.table.kinds:
        pytest.skip("offloads activations, which cannot be run again")
    if again:
        schedule = recompute_all(schedule)
    program = lower(schedule)
    for device in range(schedule.shape.devices):
        assert held_after(compile_lane(program, device)) == set()


@every
def test_an_evaluation_has_the_forwards_alone_and_is_left_with_the_losses(name: str) -> None:
    last = built(name).shape.stages - 1
    for lane in lanes_of(name):
        light = forward_lane(lane)
        forwards = [call for call in light.calls if call.op.kind in "FN" and not call.away]
        assert {call.op.kind for call in light.calls} <= {"F", "N", "E", "S", "T"}
        assert all(call.writes[-2:] == (DROPPED, DROPPED) for call in forwards)
        losses = {place(c, "g", WRITE) for c in forwards if c.op.stage == last}
        assert held_after(light) == losses - {DROPPED}
        assert "gpart" not in {join.buf.name for call in light.calls for join in call.joins}


def test_slices_of_a_microbatch_share_the_place_of_their_keys_and_values() -> None:
    calls = [call for call in lanes_of("seq1f1b")[1].calls if call.op.kind == "F"]
    places = {(call.op.mb, place(call, "kv", WRITE)) for call in calls}
    assert len(places) == built("seq1f1b").shape.microbatches
    assert len({where for _, where in places}) == len(places)


@every
def test_reads_and_writes_are_those_of_the_table_in_its_order(name: str) -> None:
    for lane in lanes_of(name, ended=True):
        for call in (call for call in lane.calls if not call.away):
            assert len(call.reads) == len(names_of(call.op.kind, READ))
            assert len(call.writes) == len(names_of(call.op.kind, WRITE))


@every
def test_the_end_of_a_step_waits_for_what_it_needs(name: str) -> None:
    for lane in lanes_of(name, ended=True):
        numbers = {call.op: call.number for call in lane.calls}
        for call in lane.calls:
            streams = {lane.calls[other].stream for other in call.awaits if other >= 0}
            assert call.stream not in streams
            assert all(other < call.number for other in call.awaits)
            if call.op.kind == "V":
                assert numbers[call.op._replace(kind="Z")] in call.awaits
            if call.op.kind == "U":
                assert -lane.homes["norm", 0] in call.awaits


@every
def test_every_sum_is_joined_once_by_each_device_that_has_a_part_of_it(name: str) -> None:
    lanes = lanes_of(name, ended=True)
    shape = built(name).shape
    joins = [join for lane in lanes for call in lane.calls for join in call.joins]
    norms = [join for join in joins if join.buf.name == "norm"]
    assert [join.members for join in norms] == [norms[0].members] * len(norms)
    assert len(norms) == len(norms[0].members)
    assert sum(len(join.parts) for join in norms) == shape.homes - len(shape.weightless)
    of_units = [join for join in joins if join.buf.number == ALL]
    brought = ((shape.embed == "E") + 2 * (shape.loss != "F")) * shape.units
    assert len(of_units) == shape.devices * brought
    assert len({join.buf for join in of_units}) == brought
    assert all(join.members == tuple(range(shape.devices)) for join in of_units)
    ties = [join for join in joins if join.buf.name == "tied"]
    assert sum(len(join.parts) for join in ties) == 2
    assert all(BUFFERS[join.buf.name].collective for join in (*norms, *ties))


@every
def test_hosts_that_keep_their_order_never_wait_for_what_comes_later(name: str) -> None:
    """Every edge leads forward in one order of all ops, of which each host has its share; hosts of
    a loan come to it before one of them goes on."""
    schedule = end_step(built(name), reduced=True)
    hosts = [host_order(schedule, device).tolist() for device in range(schedule.shape.devices)]
    assert sorted(row for rows in hosts for row in rows) == list(range(len(schedule.table)))
    done: set[int] = set()
    needs, meets = _needs(schedule)
    cursors = [0] * len(hosts)
    moved = True

    def reached() -> set[int]:
        return done | {rows[at] for rows, at in zip(hosts, cursors) if at < len(rows)}

    def goes(row: int) -> bool:
        return needs[row] <= done and (not meets[row] or meets[row] <= reached())

    while moved:
        moved = False
        for host, rows in enumerate(hosts):
            while cursors[host] < len(rows) and goes(rows[cursors[host]]):
                done.add(rows[cursors[host]])
                cursors[host] += 1
                moved = True
    assert len(done) == len(schedule.table)


def _needs(schedule: Schedule) -> tuple[list[set[int]], list[set[int]]]:
    """Rows that each row waits for, and those of other hosts that start when it does; whoever is in
    a pair, or at an end of a loan or in a gang, waits for what the others wait for."""
    graph, rows = graph_of(schedule), schedule.table.rows_by_op
    needs: list[set[int]] = [set() for _ in range(len(schedule.table))]
    meets: list[set[int]] = [set() for _ in range(len(schedule.table))]
    for reader, writer in zip(graph.reader.tolist(), graph.writer.tolist()):
        needs[reader].add(writer)
    pairs = [{row for op in pair for row in rows[op]} for pair in schedule.pairs]
    loans = [{rows[loan.heavy][0], rows[loan.light][0]} for loan in schedule.loans]
    loans += [set(rows[op]) for op in schedule.gangs]
    for together in (*pairs, *loans):
        awaited = set[int]().union(*(needs[row] for row in together)) - together
        for row in together:
            needs[row] |= awaited
    for ends in loans:
        for row in ends:
            meets[row] |= ends - {row}
            needs[row] -= ends
    return needs, meets


def test_a_reduction_is_told_before_the_work_that_runs_beside_it() -> None:
    schedule = end_step(build("interleaved", devices=2, microbatches=2, chunks=2), reduced=True)
    lane = compile_lane(lower(schedule), 0)
    text = " ".join(str(call.op) for call in lane.calls)
    assert text.index("2Z0") < text.index("0B0")


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of some work, the least of three times: a busy machine only adds to them."""
    taken = []
    for _ in range(3):
        start = process_time()
        work()
        taken.append(process_time() - start)
    return min(taken)


def test_sixteen_thousand_ops_are_compiled_in_linear_time() -> None:
    def compiling(microbatches: int) -> float:
        program = lower(build("seq1f1b", devices=4, microbatches=microbatches, slices=8))
        return seconds(lambda: compile_lane(program, 1))

    assert compiling(1000) < 20 * max(compiling(125), 0.01)


def test_compiling_an_op_takes_no_longer_than_making_some_hundred_tuples() -> None:
    """16,000 ops in 0.2 s on a quiet machine, as a ratio to something that the same load slows."""
    program = lower(build("1f1b", devices=2, microbatches=8000))
    tuples = seconds(lambda: {number: (number,) for number in range(200_000)})
    assert len(compile_lane(program, 0).calls) == 16_000
    assert seconds(lambda: compile_lane(program, 0)) < 15 * tuples


def _schedule(**changed: object) -> Schedule:
    lane = [("F", 0, 0, 0), ("B", 0, 0, 0)]
    schedule = Schedule.of("odd", Shape(1, 1, (1,)), [lane])
    return replace(schedule, derived={}, **changed)  # type: ignore[arg-type]


def refusal(lanes: Sequence[Sequence[object]], shape: Shape, name: str = "odd") -> str:
    """What is said of a schedule that the executor has no work for."""
    program = lower(_schedule())
    odd = replace(program, schedule=Schedule.of(name, shape, lanes))
    with pytest.raises(RunError) as caught:
        refuse_unsupported(odd)
    return caught.value.message


def test_the_executor_has_work_for_every_kind_of_op() -> None:
    assert set(HANDLERS) == set(LETTERS)


def test_skip_edges_are_refused_by_name() -> None:
    lane = [("F", 0, 0, 0)]
    assert refusal([lane], Shape(1, 4, (1,), skips=((0, 3),))).startswith("odd has skip edges: 0-3")


def test_both_ends_of_a_loan_know_the_same_messages_and_slices() -> None:
    schedule = build("slimpipe-level", devices=4, microbatches=2, slices=8)
    calls = [call for device in range(4) for call in compile_lane(lower(schedule), device).calls]
    lends = {end[:2]: end for call in calls for end in call.lends if call.op == end.helped}
    helps = {end[:2]: end for call in calls for end in call.helps if call.op == end.helping}
    assert set(lends) == set(helps) == {loan[:2] for loan in schedule.loans}
    tags = set()
    for loan, here in lends.items():
        there = helps[loan]
        assert here.share == there.share
        assert (here.sent.tag, here.received.tag) == (there.received.tag, there.sent.tag)
        ways = (here.sent, here.received)
        tags |= {here.message(way, number).tag for way in ways for number in range(9)}
    assert len(tags) == 2 * 9 * len(schedule.loans)
    assert min(tags) >= len(lower(schedule).moves.reader)


def test_an_op_lends_its_slices_one_behind_the_other() -> None:
    schedule = build("slimpipe-level", devices=4, microbatches=2, slices=8)
    calls = [call for device in range(4) for call in compile_lane(lower(schedule), device).calls]
    several = [call for call in calls if len(call.lends) > 1]
    assert several
    for call in several:
        ends = [end.share for end in call.lends]
        assert [each.start for each in ends] == [0, *(each.stop for each in ends[:-1])]
        assert ends[-1].stop <= call.op.slice


def test_an_evaluation_lends_between_forwards_alone() -> None:
    schedule = build("slimpipe-exchange", devices=2, microbatches=2, slices=4)
    lane = compile_lane(lower(schedule), 1)
    whole, light = (
        [end.helped.kind for call in each.calls for end in call.meets]
        for each in (lane, forward_lane(lane))
    )
    assert set(whole) == {*"FB"}
    assert light == [kind for kind in whole if kind == "F"]


def test_a_member_of_a_gang_away_from_home_only_helps() -> None:
    schedule = build("sppo-msp", devices=3, microbatches=1, slices=4)
    lanes = [compile_lane(lower(schedule), device) for device in range(3)]
    calls = [(lane.device, call) for lane in lanes for call in lane.calls]
    for device, call in calls:
        assert call.away is (call.op.stage != device)
        assert bool(call.helps) is call.away
        if call.away:
            assert (call.reads, call.writes, call.waits, call.sends, call.frees) == ((),) * 5
    lent = {call.op: [end.share for end in call.lends] for _, call in calls if call.lends}
    assert set(lent) == set(schedule.gangs)
    for op, shares in lent.items():
        members = len(schedule.table.rows_by_op[op])
        assert shares == [GangShare(number, members) for number in range(members - 1)]


def test_an_evaluation_of_gangs_has_their_forwards_alone() -> None:
    schedule = build("sppo-msp", devices=2, microbatches=1, slices=4)
    lane = forward_lane(compile_lane(lower(schedule), 1))
    assert [str(call.op) for call in lane.calls] == ["0F0", "1F0", "1F0.1", "1F0.2", "1F0.3"]
    assert [len(call.meets) for call in lane.calls] == [1, 0, 0, 0, 1]

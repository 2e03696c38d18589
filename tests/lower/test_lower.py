"""Programs: sends behind their writer, receives into planned slots, frees at the last use."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from core.samples import every
from penstock.check import check_program
from penstock.core.meaning import Buf, reads, writes
from penstock.core.ops import Op
from penstock.core.program import Channel, Program
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import ScheduleError, ShapeError
from penstock.lower import lower, needed_slots
from penstock.schedules import build
from penstock.sim import simulate
from penstock.sim.slots import stall_free_slots


@pytest.mark.long
@every
def test_every_program_is_proven_for_rendezvous_channels(schedule: Schedule) -> None:
    assert check_program(lower(schedule)) == ()


@pytest.mark.matrix
@pytest.mark.long
@every
def test_more_slots_are_proven_too(schedule: Schedule) -> None:
    slots = stall_free_slots(simulate(schedule))
    assert all(slots[channel] >= count for channel, count in needed_slots(schedule).items())
    assert check_program(lower(schedule, slots)) == ()


def test_a_small_program_reads_as_it_should() -> None:
    program = lower(build("1f1b", devices=2, microbatches=1))
    assert [str(step) for step in program.instructions(1)] == [
        "receive the input of stage 1, microbatch 0 on 0->1 x into slot 0",
        "1F0",
        "1B0",
        "send the output gradient of stage 0, microbatch 0 on 1->0 g",
        "free the output gradient of stage 1, microbatch 0",
        "free the keys and values of stage 1, microbatch 0",
        "free the saved activation of stage 1, microbatch 0",
        "free what the weight gradient needs of the activation of stage 1, microbatch 0",
        "free the key/value gradient of stage 1, microbatch 0",
    ]


def test_an_op_that_lends_work_begins_sends_and_ends_with_the_result() -> None:
    program = lower(build("slimpipe-exchange", devices=2, microbatches=2, slices=4))
    heavy, light = program.schedule.loans[0][:2]
    device = program.schedule.table.device[program.schedule.table.row_of(heavy)]
    steps = [str(step) for step in program.instructions(int(device))]
    begin = steps.index(f"begin {heavy}")
    lent = f"the queries, keys and values of loan 0, microbatch {heavy.mb}, slice {heavy.slice}"
    assert steps[begin + 1].startswith(f"send {lent} on {device}->{1 - device} lent")
    assert steps[begin + 2] == str(heavy)
    helper = [str(step) for step in program.instructions(int(1 - device))]
    back = next(step for step in helper if step.startswith("send the result of lent attention"))
    assert helper.index(back) > helper.index(str(light))


def test_a_loan_whose_result_never_comes_is_found() -> None:
    program = lower(build("slimpipe-exchange", devices=2, microbatches=2, slices=4))
    back = next(n for n, c in enumerate(program.channels) if c.payload == "returned")
    late = program.posts._replace(
        items=program.posts.items[program.channel[program.posts.items] != back]
    )
    kept = np.flatnonzero(program.channel[program.posts.items] != back)
    start = np.searchsorted(kept, program.posts.start).astype(np.int32)
    findings = check_program(replace(program, posts=late._replace(start=start)))
    assert any("the result of lent attention" in finding.message for finding in findings)


def swapped(program: Program) -> Program:
    """The program with the first two receives of a channel exchanged."""
    first, second = np.flatnonzero(program.channel == program.channel[0])[:2]
    items = program.posts.items.copy()
    one, other = (np.flatnonzero(items == move)[0] for move in (first, second))
    items[[one, other]] = items[[other, one]]
    assert not np.array_equal(items, program.posts.items)
    return replace(program, posts=program.posts._replace(items=items))


def test_receives_in_another_order_than_the_sends_are_found() -> None:
    program = lower(build("1f1b", devices=2, microbatches=4))
    assert "channel" in {finding.rule for finding in check_program(swapped(program))}


def test_a_receive_into_a_slot_in_use_is_found() -> None:
    schedule = build("1f1b", devices=2, microbatches=4)
    program = lower(schedule, {Channel(0, 1, "x"): 2})
    crowded = replace(program, slot=np.zeros_like(program.slot))
    assert "slot" in {finding.rule for finding in check_program(crowded)}


def test_a_free_before_the_last_reader_is_found() -> None:
    program = lower(build("1f1b", devices=2, microbatches=2))
    start = program.frees.start.copy()
    early = np.zeros(int(start[-1]), np.int32)
    early[:] = program.frees.items
    rows = np.repeat(np.arange(len(start) - 1), np.diff(start))
    rows = np.maximum(rows - 1, 0)
    moved = np.searchsorted(rows, np.arange(len(start))).astype(np.int32)
    hasty = replace(program, frees=program.frees._replace(start=moved, items=early))
    assert "lifetime" in {finding.rule for finding in check_program(hasty)}


def test_too_few_slots_are_refused_by_name() -> None:
    schedule = build("1f1b", devices=2, microbatches=4)
    with pytest.raises(ShapeError, match="0->1 x with 0 slot"):
        lower(schedule, {Channel(0, 1, "x"): 0})


def test_a_channel_read_out_of_order_needs_a_slot_for_each_that_waits() -> None:
    """Device 0 sends microbatches 0 1 2; device 1 reads 2 first, so all three must be held."""
    shape = build("gpipe", devices=2, microbatches=3).shape
    forwards = [("F", 0, mb, 0) for mb in range(3)]
    lanes = [
        [*forwards, *(("B", 0, mb, 0) for mb in (2, 1, 0))],
        [(kind, 1, mb, 0) for kind in "FB" for mb in (2, 1, 0)],
    ]
    schedule = Schedule.of("reversed", shape, lanes)
    assert needed_slots(schedule) == {Channel(0, 1, "x"): 3, Channel(1, 0, "g"): 1}
    assert check_program(lower(schedule)) == ()


def test_only_a_proven_schedule_is_lowered() -> None:
    good = build("1f1b", devices=2, microbatches=2)
    lanes = [(device, stream, ops[::-1]) for device, stream, ops in good.table.lanes()]
    with pytest.raises(ScheduleError):
        lower(Schedule.from_lanes("backwards", good.shape, lanes))


def skipping(devices: int, stages: int, most: int) -> Iterator[Schedule]:
    """One microbatch through looped stages, with every set of so many skip edges."""
    edges = [(source, target) for target in range(stages) for source in range(target)]
    order = [Op("F", stage, 0) for stage in range(stages)]
    order += [Op("B", stage, 0) for stage in reversed(range(stages))]
    lanes = [[op for op in order if op.stage % devices == device] for device in range(devices)]
    for count in range(1, most + 1):
        for skips in combinations(edges, count):
            yield Schedule.of(str(skips), Shape(devices, stages, (1,), skips=skips), lanes)


def wanted(schedule: Schedule) -> set[tuple[Buf, int]]:
    """What each device reads and another one writes, op by op."""
    shape = schedule.shape
    home = {op: device for device, _, ops in schedule.table.lanes() for op in ops}
    writer = {buf: op for op in home for buf in writes(op, shape)}
    return {
        (buf, device)
        for op, device in home.items()
        for buf in reads(op, shape)
        if buf in writer and home[writer[buf]] != device
    }


@pytest.mark.long
@pytest.mark.parametrize(("devices", "stages"), [(2, 4), (3, 3), (4, 4)])
def test_a_transfer_carries_the_skip_edge_that_its_ends_write_and_read(
    devices: int, stages: int
) -> None:
    for schedule in skipping(devices, stages, 3):
        program = lower(schedule)
        moves = range(len(program.moves.writer))
        sent = [(program.moved(move), program.channels[program.channel[move]]) for move in moves]
        assert {(buf, channel.target) for buf, channel in sent} == wanted(schedule)
        assert len(sent) == len(wanted(schedule)), schedule.name

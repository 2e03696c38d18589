"""A read of all shards is one collective, joined by every device in one order."""

from dataclasses import replace

import numpy as np
import pytest

from core.samples import every
from penstock.check import check_program
from penstock.core.buffers import ALL, COLLECTIVE, Buf
from penstock.core.collectives import collectives_of
from penstock.core.host_order import unit_ends
from penstock.core.program import Program
from penstock.core.schedule import Schedule
from penstock.core.transfers import moves_of
from penstock.lower import lower
from penstock.schedules import build


def vocabulary_program() -> Program:
    return lower(build("vocab-1f1b", devices=4, microbatches=6))


@pytest.mark.long
@every
def test_what_a_collective_brings_is_in_no_message(schedule: Schedule) -> None:
    moves = moves_of(schedule)
    sent = {moves.payload(move) for move in range(len(moves.writer))}
    assert not sent & set(COLLECTIVE)


def test_each_microbatch_has_one_collective_for_each_thing_that_shards_share() -> None:
    program = vocabulary_program()
    shape, collectives = program.schedule.shape, program.collectives
    found = [collectives.buf(at, shape) for at in range(len(collectives))]
    wanted = {Buf(name, ALL, mb, 0) for name in ("partial", "stat", "gpart") for mb in range(6)}
    assert len(found) == len(wanted)
    assert set(found) == wanted
    assert {len(collectives.parts(at)) for at in range(len(collectives))} == {4}


@pytest.mark.long
@every
def test_every_device_joins_in_the_order_of_all_and_behind_its_parts(schedule: Schedule) -> None:
    program = lower(schedule)
    device, ends = schedule.table.device, unit_ends(schedule)
    for at in range(schedule.shape.devices):
        rows = [row for row in range(len(schedule.table)) if device[row] == at]
        rows.sort(key=lambda row: int(ends[row]))
        joined = [number for row in rows for number in program.joins.after(row)]
        parts = program.collectives.parts
        assert joined == [
            number
            for number in range(len(program.collectives))
            if at in device[parts(number)].tolist()
        ]


@pytest.mark.long
@every
def test_the_order_of_all_is_that_of_the_last_parts(schedule: Schedule) -> None:
    collectives, ends = collectives_of(schedule), unit_ends(schedule)
    complete = [ends[collectives.parts(at)].max() for at in range(len(collectives))]
    assert complete == sorted(complete)


def moved_joins(program: Program, rows: list[int]) -> Program:
    """The program in which the first two collectives of device 0 are joined after other rows."""
    after = np.repeat(np.arange(len(program.joins.start) - 1), np.diff(program.joins.start))
    here = np.flatnonzero(program.schedule.table.device[after] == 0)[:2]
    after[here] = rows
    order = np.argsort(after, kind="stable")
    start = np.searchsorted(after[order], np.arange(len(program.joins.start))).astype(np.int32)
    joins = program.joins._replace(start=start, items=program.joins.items[order])
    return replace(program, joins=joins)


def rows_of_first_joins(program: Program) -> list[int]:
    after = np.repeat(np.arange(len(program.joins.start) - 1), np.diff(program.joins.start))
    on_first = program.schedule.table.device[after] == 0
    return [int(row) for row in after[on_first][:2]]


def test_collectives_joined_in_another_order_are_found() -> None:
    program = vocabulary_program()
    first, second = rows_of_first_joins(program)
    assert first != second
    assert check_program(program) == ()
    findings = check_program(moved_joins(program, [second, first]))
    assert any(finding.rule == "collective-order" for finding in findings)
    assert any("out of order" in finding.message for finding in findings)


def test_a_collective_joined_before_its_part_is_written_is_found() -> None:
    program = lower(build("vocab-1f1b", devices=4, microbatches=6))
    first, second = rows_of_first_joins(program)
    findings = check_program(moved_joins(program, [first, first]))
    assert any("which writes a part of it" in finding.message for finding in findings)
    assert second > first


def test_a_collective_that_a_device_never_joins_is_found() -> None:
    program = vocabulary_program()
    start = np.minimum(program.joins.start, len(program.joins.items) - 1)
    missing = replace(
        program, joins=program.joins._replace(start=start, items=program.joins.items[:-1])
    )
    assert "deadlock" in {finding.rule for finding in check_program(missing)}

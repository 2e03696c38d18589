"""Memory follows from writes and last reads, however it is worked out."""

from collections import defaultdict
from fractions import Fraction

import numpy as np

from core.samples import every, plain
from penstock.core.buffers import BUFFERS
from penstock.core.lifetimes import level_changes
from penstock.core.meaning import reads, writes
from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.sim import simulate

SIZES = {
    name: Fraction(size)
    for name, size in zip(("act", "stash", "ckpt", "kv", "dkv"), (5, 3, 1, 2, 1))
}


def changes_by_object(schedule: Schedule, amount: dict[str, int]) -> tuple[list[int], list[int]]:
    """Level changes by walking every buffer's life: born at its writer, gone at its last reader."""
    start, end = defaultdict(int), defaultdict(int)
    born: dict[tuple, tuple[int, int]] = {}
    written = frozenset(buf for op in schedule.table.ops() for buf in writes(op, schedule.shape))
    last: dict[tuple, int] = {}
    read: dict[tuple, int] = {}
    for row, op in enumerate(schedule.table.ops()):
        share = schedule.shape.share_of_slice(op.mb, op.slice)
        share *= schedule.shape.share_of_stage(op.stage)
        for buf in writes(op, schedule.shape):
            whole = BUFFERS[buf.name].per == "microbatch"
            key = (buf.name, buf.number, buf.mb) if whole else tuple(buf)
            size = amount.get(BUFFERS[buf.name].size, 0) * share
            row_born, held = born.get(key, (row, Fraction(0)))
            born[key] = (row_born, held + size)
            last[key] = max(last.get(key, row), row)
        for buf in reads(op, schedule.shape, written):
            if op.kind == "W" and buf.name == "back":
                continue  # what of it the weight gradient needs is counted as its stash
            whole = BUFFERS[buf.name].per == "microbatch"
            key = (buf.name, buf.number, buf.mb) if whole else tuple(buf)
            read[key] = max(read.get(key, row), row)
    last |= read  # a read comes after the write, whatever their rows
    for key, (row, held) in born.items():
        (start if BUFFERS[key[0]].born == "start" else end)[row] += held
        end[last[key]] -= held
    size = len(schedule.table)
    return [start[row] for row in range(size)], [end[row] for row in range(size)]


@plain
def test_level_changes_are_those_of_the_buffers_lives(schedule: Schedule) -> None:
    shape = schedule.shape
    scale = 720720  # divisible by every number of slices and chunks in use
    amounts = {}
    for name, size in SIZES.items():
        share = [
            shape.share_of_slice(op.mb, op.slice) * shape.share_of_stage(op.stage) * size * scale
            for op in schedule.table.ops()
        ]
        assert all(value.denominator == 1 for value in share)
        amounts[name] = np.array([int(value) for value in share], np.int64)
    start, end = level_changes(schedule, amounts)
    expected = changes_by_object(schedule, {name: int(size) for name, size in SIZES.items()})
    assert [Fraction(int(value), scale) for value in start] == expected[0]
    assert [Fraction(int(value), scale) for value in end] == expected[1]


@every
def test_curves_and_peaks_agree_and_end_at_zero(schedule: Schedule) -> None:
    for sizes in ({}, SIZES):
        timeline = simulate(schedule, UnitCost(sizes=sizes))
        for device, curve in enumerate(timeline.curves):
            at = (sizes, device)
            assert int(curve.level.max(initial=0)) * timeline.grain == timeline.peak[device], at
            assert curve.level.min(initial=0) >= 0, at
            assert not len(curve.level) or curve.level[-1] == 0, at

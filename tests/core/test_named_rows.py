"""Rows of ops that are looked up as columns are those of the ops."""

from itertools import pairwise

import numpy as np
import pytest

from penstock.core.groups import groups_of
from penstock.core.named_rows import are_pairs_braided, pair_rows
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.schedules import build
from transform.pictures import draw, ops
from transform.samples import SAMPLES, Sample


@pytest.mark.parametrize("sample", SAMPLES)
def test_first_rows_are_those_of_each_op(sample: Sample) -> None:
    table = sample().table
    every = [*table.ops(), Op("F", 99, 0), Op("F", 0, 99), Op("F", 0, 0, 99), Op("W", 0, 0)]
    assert table.first_rows(every).tolist() == [table.row_of(op) for op in every]


def test_what_is_no_kind_is_in_no_lane() -> None:
    table = build("1f1b", devices=2, microbatches=2).table
    strange = [Op("F", 0, 1), Op("FF", 0, 0), Op("x", 0, 0), Op("F", -1, 0)]
    assert table.first_rows(strange).tolist()[1:] == [-1, -1, -1]
    assert table.first_rows([Op("F", -1, 0), Op("F", 0, -1)]).tolist() == [-1, -1]


def test_an_op_in_two_lanes_is_a_repetition() -> None:
    assert draw("0  0F0 0B0\n1  0F0", Shape(2, 2, (1,))).table.repeats
    assert not build("1f1b", devices=2, microbatches=2).table.repeats


def _paired(lane: str, *pairs: str) -> Schedule:
    return draw(f"0  {lane}", Shape(1, 2, (1, 1)), pairs=tuple(map(ops, pairs)))


def test_strands_are_braided_where_they_are_neighbours() -> None:
    lane = "0F0 1F0 0F1 1B0 1F1 0B0 1B1 0B1"
    assert are_pairs_braided(_paired(lane, "0F1 1B0", "0B0 1F1"))
    assert not are_pairs_braided(_paired(lane, "0F0 0F1"))
    assert not are_pairs_braided(_paired(lane, "0F1 1B0", "1B0 1F1"))
    assert not are_pairs_braided(_paired(lane, "0F1 0W0"))
    assert [each.tolist() for each in pair_rows(_paired(lane, "0B0 1F1"))] == [[[5, 4]]]


def _merged(schedule: Schedule) -> list[list[int]]:
    """Rows of each group, ascending; groups that share a row are one. Op by op."""
    rows, groups = schedule.table.rows_by_op, list[set[int]]()
    together = [*schedule.pairs, *([op] for op in schedule.gangs)]
    for ops_of_group in [*together, *(loan[:2] for loan in schedule.loans)]:
        own = {row for op in ops_of_group for row in rows[op]}
        own = own.union(*(group for group in groups if group & own))
        groups = [*(group for group in groups if not group & own), own]
    return sorted(sorted(group) for group in groups)


@pytest.mark.parametrize(
    ("name", "slices"),
    [
        *(("dualpipev", None), ("stp", None), ("sppo-msp", 8)),
        *(("slimpipe-exchange", 8), ("slimpipe-level", 8)),
    ],
)
def test_groups_are_those_that_are_merged_one_by_one(name: str, slices: int | None) -> None:
    schedule = build(name, devices=4, microbatches=12, slices=slices)
    assert schedule.pairs or schedule.gangs or schedule.loans
    groups = groups_of(schedule)
    found = [groups.rows[slice(*ends)].tolist() for ends in pairwise(groups.start.tolist())]
    assert found == _merged(schedule)
    assert [*np.flatnonzero(groups.of_row >= 0)] == sorted(groups.rows)
    for number, rows in enumerate(found):
        assert {*groups.of_row[rows].tolist()} == {number}

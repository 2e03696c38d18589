"""One seeded mistake per rule: the rule that must report it, and the op it must name."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from core.worked import offloaded
from loops import each
from penstock.check import RULES, Finding, check, explain, require
from penstock.check.memory import memory_findings
from penstock.core.ops import Op, parse_op
from penstock.core.schedule import After, Loan, Schedule
from penstock.core.shape import Shape
from penstock.errors import ScheduleError
from penstock.schedules import build


def schedule_of(text: str, shape: Shape, **annotations) -> Schedule:
    """A schedule from lanes typed one per line."""
    lanes = [
        (device, "compute", [parse_op(word) for word in line.split()])
        for device, line in enumerate(text.strip().splitlines())
    ]
    return Schedule.from_lanes("typed", shape, lanes, **annotations)


TWO = Shape.even(2, 2)
SLICED = Shape.even(2, 1, slices=2)

FAULTS = {
    "an op of a stage that is not there": (
        """0F0 0F1 0B0 0B1
           1F0 1B0 1F1 1B1 5F0""",
        TWO, "known", "5F0",
    ),
    "an op of a microbatch that is not there": (
        """0F0 0F1 0B0 0B1 0F2
           1F0 1B0 1F1 1B1""",
        TWO, "known", "0F2",
    ),
    "a copy in the compute lane": (
        """0F0 0F1 0O0 0B0 0B1
           1F0 1B0 1F1 1B1""",
        TWO, "stream", "0O0",
    ),
    "a forward that is missing": (
        """0F0 0F1 0B0 0B1
           1F0 1B0 1B1""",
        TWO, "complete", "1F1",
    ),
    "a backward that is done twice": (
        """0F0 0F1 0B0 0B1 0B1
           1F0 1B0 1F1 1B1""",
        TWO, "complete", "0B1",
    ),
    "a full backward beside its two halves": (
        """0F0 0F1 0B0 0I1 0W1 0B1
           1F0 1B0 1F1 1B1""",
        TWO, "complete", "0B1",
    ),
    "an input gradient without its weight gradient": (
        """0F0 0F1 0B0 0I1
           1F0 1B0 1F1 1B1""",
        TWO, "complete", "0W1",
    ),
    "a recompute of what was kept": (
        """0F0 0F1 0R1 0B0 0B1
           1F0 1B0 1F1 1B1""",
        TWO, "complete", "0R1",
    ),
    "a stage on two devices": (
        """0F0 0F1 0B0 1B1 0B1
           1F0 1B0 1F1""",
        TWO, "one-home", "1B1",
    ),
    "a backward in front of its forward": (
        """0F0 0B0 0F1 0B1
           1B0 1F0 1F1 1B1""",
        TWO, "read-before-write", "1B0",
    ),
    "backward slices from left to right": (
        """0F0 0F0.1 0B0.1 0B0
           1F0 1F0.1 1B0 1B0.1""",
        SLICED, "slice-order", "1B0",
    ),
    "forward slices from right to left": (
        """0F0.1 0F0 0B0.1 0B0
           1F0 1F0.1 1B0.1 1B0""",
        SLICED, "slice-order", "0F0.1",
    ),
    "two lanes that wait for each other": (
        """0F0 0B0 0F1 0B1
           1F0 1F1 1B0 1B1""",
        TWO, "deadlock", "1F1",
    ),
    "a backward in front of the confirmation": (
        """0F0 0F1 0B0 0C0 0B1 0V0 0A0
           1F0 1C0 1B0 1F1 1B1 1V0 1A0""",
        TWO, "confirmed", "0B0",
    ),
    "a forward that would not come again": (
        """0F0 0C0 0F1 0B0 0B1 0V0 0A0
           1F0 1F1 1C0 1B0 1B1 1V0 1A0""",
        TWO, "confirmed", "1F1",
    ),
    "an early update in front of its norm": (
        """0F0 0F1 0C0 0B0 0B1 0A0 0V0
           1F0 1C0 1B0 1F1 1B1 1V0 1A0""",
        TWO, "read-before-write", "0A0",
    ),
}  # fmt: skip


@each("fault", FAULTS)
def test_every_fault_is_reported_by_its_rule_with_its_op(fault: str) -> None:
    text, shape, rule, op = FAULTS[fault]
    report = check(schedule_of(text, shape))
    assert not report.proven
    assert report.findings[0].rule == rule
    assert parse_op(op) in report.findings[0].ops
    assert report.findings[0].hint


LOCAL = {
    "a weightless stage whose backward stands elsewhere": (
        """0F0 1F0 2F0 2B0 0B0
           1B0""",
        Shape(2, 3, (1,), weightless=frozenset({1})), "1B0",
    ),
    "a copy of the weights that sees only the backward": (
        """0F0 1F1 1B1 0B1
           0F1 1F0 1B0 0B0""",
        Shape(2, 2, (1, 1), copies=2), "0B0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", LOCAL)
def test_what_an_op_saves_may_not_be_read_on_another_device(fault: str) -> None:
    text, shape, op = LOCAL[fault]
    findings = check(schedule_of(text, shape)).findings
    assert {finding.rule for finding in findings} == {"local"}
    assert parse_op(op) in [op for finding in findings for op in finding.ops]


def test_an_offload_on_the_copy_lane_of_another_device_is_refused() -> None:
    lanes = [
        (0, "compute", [parse_op(word) for word in ("0F0", "0B0")]),
        (1, "compute", [parse_op(word) for word in ("1F0", "1B0")]),
        (1, "copy", [parse_op(word) for word in ("0O0", "0L0")]),
    ]
    findings = check(Schedule.from_lanes("stray", Shape.even(2, 1), lanes)).findings
    assert {finding.rule for finding in findings} == {"local"}


def test_every_rule_about_order_has_a_fault_here_or_beside() -> None:
    elsewhere = {
        "annotation",
        "local",
        "collective-order",
        "memory",
        "channel",
        "slot",
        "lifetime",
    }
    assert {rule for _, _, rule, _ in FAULTS.values()} == set(RULES) - elsewhere


LENT = Shape.even(2, 1, slices=3)
LENDING = """0F0 0F0.1 0F0.2 0B0.2 0B0.1 0B0
             1F0 1F0.1 1F0.2 1B0.2 1B0.1 1B0"""


@pytest.mark.parametrize(
    ("loans", "word"),
    [
        ("1F0.2 0F0 3", "between 1 and 2 slices"),
        ("1F0.2 1F0 1", "needs two devices"),
        ("1F0.1 0F0 1, 1F0.1 0F0.1 1", "of 2 that it lends in all"),
        ("1F0.1 0F0.2 1, 1F0.1 0F0.2 1", "of 2 that it lends in all"),
        ("1F0.2 0F0.2 1, 1F0.2 0F0.2 1", "is there more than once"),
        ("1F0.2 0F0.2 1, 0F0.2 1F0.2 1", "lends itself"),
    ],
)
def test_loans_that_cannot_be_run_are_refused(loans: str, word: str) -> None:
    each = [loan.split() for loan in loans.split(", ")]
    given = tuple(Loan(parse_op(a), parse_op(b), int(count)) for a, b, count in each)
    findings = check(schedule_of(LENDING, LENT, loans=given)).findings
    assert {finding.rule for finding in findings} == {"annotation"}
    assert any(word in finding.message for finding in findings)


@pytest.mark.parametrize(
    ("annotations", "word"),
    [
        ({"pairs": ((Op("F", 0, 1), Op("B", 0, 1)),)}, "not neighbours"),
        ({"pairs": ((Op("F", 0, 7), Op("B", 0, 1)),)}, "is in no lane"),
        ({"gangs": (Op("F", 0, 1),)}, "two or more different ones"),
        ({"loans": (Loan(Op("F", 0, 1), Op("F", 1, 1), 1),)}, "between 1 and 0"),
        ({"shares": ((Op("F", 0, 1), Fraction(1, 2)),)}, "a share belongs to an offload"),
        ({"after": (After(Op("F", 3, 1), Op("F", 0, 1)),)}, "is in no lane"),
    ],
)
def test_annotations_that_cannot_be_obeyed_are_refused(annotations: dict, word: str) -> None:
    text = """0F0 0F1 0B0 0B1
              1F0 1B0 1F1 1B1"""
    findings = check(schedule_of(text, TWO, **annotations)).findings
    assert [finding.rule for finding in findings] == ["annotation"]
    assert word in findings[0].message


def test_an_explicit_order_against_the_lane_is_refused() -> None:
    text = """0F0 0F1 0B0 0B1
              1F0 1B0 1F1 1B1"""
    backwards = After(Op("F", 0, 0), Op("F", 0, 1))
    findings = check(schedule_of(text, TWO, after=(backwards,))).findings
    assert findings[0].ops == (Op("F", 0, 0), Op("F", 0, 1))
    assert "must come after 0F1" in findings[0].message


def test_a_pair_whose_strands_need_each_other_is_refused() -> None:
    text = """0F0 0F1 0B0 0B1
              1F0 1B0 1F1 1B1"""
    pair = (Op("F", 0, 1), Op("B", 0, 0))
    assert check(schedule_of(text, TWO, pairs=(pair,))).proven
    late = schedule_of(
        """0F0 0F1 0B1 0B0
           1F0 1F1 1B1 1B0""",
        TWO,
        pairs=((Op("F", 0, 1), Op("B", 0, 1)),),
    )
    findings = check(late).findings
    assert findings[0].rule == "deadlock"
    assert Op("B", 0, 1) in findings[0].ops


def test_a_mistake_is_reported_once_and_not_through_what_follows_from_it() -> None:
    good = build("seq1f1b", devices=4, microbatches=8, slices=4)
    lanes = [(device, stream, list(ops)) for device, stream, ops in good.table.lanes()]
    lanes[2][2].remove(Op("F", 2, 3, 1))
    assert len(check(Schedule.from_lanes("broken", good.shape, lanes)).findings) == 1


def test_an_op_moved_far_to_the_back_is_blamed_itself() -> None:
    good = build("seq1f1b", devices=4, microbatches=4, slices=2)
    lanes = [(device, stream, list(ops)) for device, stream, ops in good.table.lanes()]
    lanes[0][2].remove(Op("F", 0, 2, 0))
    lanes[0][2].append(Op("F", 0, 2, 0))
    finding = check(Schedule.from_lanes("broken", good.shape, lanes)).findings[0]
    assert finding.ops[0] == Op("F", 0, 2, 0)
    assert finding.hint == "move 0F2 before 0F2.1"


@pytest.mark.parametrize(
    ("device", "early", "late"),
    [(1, "1B0", "1F4"), (2, "2B0", "2F4"), (3, "3B0", "3F4"), (3, "3B2", "3F6")],
)
def test_in_a_circle_of_waits_the_moved_op_is_blamed(device: int, early: str, late: str) -> None:
    """An op that was put behind a later one is found although every lane of the circle waits."""
    good = build("1f1b", devices=4, microbatches=8)
    lanes = [(at, stream, list(ops)) for at, stream, ops in good.table.lanes()]
    lane, moved, other = lanes[device][2], parse_op(early), parse_op(late)
    lane.remove(moved)
    lane.insert(lane.index(other) + 1, moved)
    finding = check(Schedule.from_lanes("broken", good.shape, lanes)).findings[0]
    assert finding.rule == "deadlock"
    assert finding.device == device
    assert moved in finding.ops
    assert finding.hint.startswith("move ")


def test_the_explanation_points_at_the_op_in_its_lane() -> None:
    text, shape, _, _ = FAULTS["backward slices from left to right"]
    schedule = schedule_of(text, shape)
    assert explain(schedule, check(schedule)).endswith(
        "1 compute: 1F0 1F0.1 1B0 1B0.1\n"
        "                     ^^^ -----"
    )  # fmt: skip


def test_a_refuted_schedule_raises_with_its_findings() -> None:
    text, shape, _, _ = FAULTS["a forward that is missing"]
    with pytest.raises(ScheduleError, match="1F1 is missing") as caught:
        require(schedule_of(text, shape))
    assert caught.value.findings[0].rule == "complete"


def test_a_missing_forward_without_a_recompute_was_no_recomputed_one() -> None:
    text = "0N0 0N0.1 0B0.2 0R0.1 0B0.1 0R0 0B0"
    findings = check(schedule_of(text, Shape(1, 1, (3,)))).findings
    assert findings[0].ops == (parse_op("0F0.2"),)


def test_a_stage_that_gangs_help_with_still_has_one_home() -> None:
    text = """0F0 0F1 1F0 1B0 0B1 0B0
              0F0 1F1 1B1"""
    findings = check(schedule_of(text, TWO, gangs=(Op("F", 0, 0),))).findings
    assert {finding.rule for finding in findings} == {"one-home"}
    assert parse_op("1F0") in findings[0].ops


def test_a_gang_without_a_member_at_home_is_refused() -> None:
    text = """0F0 0F1 1F0 0B1 0B0
              1F1 1B1 1B0
              1F0 2F0 2F1 2B1 2B0"""
    shape = Shape(3, 3, (1, 1))
    findings = check(schedule_of(text, shape, gangs=(Op("F", 1, 0),))).findings
    assert {finding.rule for finding in findings} == {"one-home"}
    assert parse_op("1F0") in findings[0].ops


def test_a_gang_lends_nothing_beside_what_it_shares() -> None:
    text = """0F0 0F0.1 0B0.1 0B0
              1F0 0F0.1 1F0.1 1B0.1 1B0"""
    loan, gangs = Loan(Op("F", 1, 0, 1), Op("F", 0, 0, 1), 1), (Op("F", 0, 0, 1),)
    findings = check(schedule_of(text, Shape(2, 2, (2,)), loans=(loan,), gangs=gangs)).findings
    assert [finding.rule for finding in findings] == ["annotation"]
    assert "0F0.1 is a gang, whose members share its attention" in findings[0].message


def test_weight_gradients_added_out_of_order_are_a_fact_not_a_fault() -> None:
    text = """0F0 0F1 0B1 0B0
              1F0 1F1 1B1 1B0"""
    report = check(schedule_of(text, TWO))
    assert report.proven
    assert report.unordered == (0, 1)
    assert check(build("1f1b", devices=2, microbatches=2)).accumulation == "ascending"


def test_a_weight_gradient_that_waits_for_whole_backwards_is_out_of_order_too() -> None:
    text = """0F0 0F1 0I0 0B1 0W0
              1F0 1F1 1I0 1W0 1B1"""
    assert check(schedule_of(text, TWO)).unordered == (0,)


def within(schedule: Schedule, limit: int) -> Iterator[Finding]:
    """Findings about a limit when an activation holds 10, counted in steps of 2."""
    amounts = {"act": np.full(len(schedule.table), 5, np.int64)}
    return memory_findings(schedule, amounts, limit=Fraction(limit), grain=Fraction(2))


def test_a_memory_limit_is_proven_by_order_alone() -> None:
    schedule = build("1f1b", devices=4, microbatches=8)
    assert not list(within(schedule, 40))
    findings = list(within(schedule, 39))
    assert [(finding.device, str(finding.ops[0])) for finding in findings] == [(0, "0F3")]


def test_memory_that_a_copy_frees_counts_only_where_the_lane_waits_for_it() -> None:
    ordered = offloaded()
    assert not list(within(ordered, 20))
    lanes = list(ordered.table.lanes())
    free = Schedule.from_lanes("free", ordered.shape, lanes, after=ordered.after[1:])
    assert check(free).proven
    assert [finding.device for finding in within(free, 20)] == [0]

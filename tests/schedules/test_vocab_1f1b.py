"""Vocabulary passes in 1F1B: arXiv:2411.05288 and its public code."""

from fractions import Fraction

import pytest

from loops import each_case
from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.schedules import build
from penstock.schedules.generators.bundles import bundle_orders, extra_bundles
from penstock.sim import simulate
from penstock.sim.timeline import Timeline
from schedules.picture import built, lane, lanes, picture

QUARTER = Fraction(1, 4)


def without_input_passes(schedule: Schedule) -> list[list[str]]:
    return [[word for word in words if word[0] not in "ED"] for words in lanes(schedule)]


def at(algorithm: int, sizes: tuple[int, int], **times: Fraction | int) -> Timeline:
    """The timeline whose order is made for these times."""
    prices = {kind: Fraction(time) for kind, time in times.items()}
    schedule = build(
        "vocab-1f1b",
        devices=sizes[0],
        microbatches=sizes[1],
        options={"algorithm": algorithm},
        prices=prices,
    )
    return simulate(schedule, UnitCost(times=prices))


def test_section_6_the_worked_example_of_algorithm_1() -> None:
    assert without_input_passes(built("vocab-1f1b", p=4, m=8, algorithm=1)) == picture("""
        0 F0 F1 F2 F3 S0 F4 T0 S1 F5 T1 S2 T2 S3 T3 S4 B0 F6 T4 S5 B1 F7 T5 S6 B2 T6 S7 B3 T7
          B4 B5 B6 B7
        1 F0 F1 F2 S0 F3 T0 S1 F4 T1 S2 T2 S3 B0 T3 S4 F5 B1 T4 S5 F6 B2 T5 S6 F7 B3 T6 S7 B4 T7
          B5 B6 B7
        2 F0 F1 S0 F2 T0 S1 F3 T1 S2 B0 T2 S3 F4 B1 T3 S4 F5 B2 T4 S5 F6 B3 T5 S6 F7 B4 T6 S7 B5
          T7 B6 B7
        3 F0 S0 F1 T0 S1 F2 B0 T1 S2 F3 B1 T2 S3 F4 B2 T3 S4 F5 B3 T4 S5 F6 B4 T5 S6 F7 B5 T6 S7
          B6 T7 B7
    """)


def test_section_6_the_worked_example_of_algorithm_2() -> None:
    assert without_input_passes(built("vocab-1f1b", p=4, m=8, algorithm=2)) == picture("""
        0 F0 F1 F2 F3 S0 F4 T0 S1 T1 S2 T2 S3 B0 F5 T3 S4 B1 F6 T4 S5 B2 F7 T5 S6 B3 T6 S7
          B4 B5 B6 B7 T7
        1 F0 F1 F2 S0 F3 T0 S1 T1 S2 B0 T2 S3 F4 B1 T3 S4 F5 B2 T4 S5 F6 B3 T5 S6 F7 B4 T6 S7
          B5 B6 B7 T7
        2 F0 F1 S0 F2 T0 S1 B0 T1 S2 F3 B1 T2 S3 F4 B2 T3 S4 F5 B3 T4 S5 F6 B4 T5 S6 F7 B5 T6 S7
          B6 B7 T7
        3 F0 S0 F1 B0 T0 S1 F2 B1 T1 S2 F3 B2 T2 S3 F4 B3 T3 S4 F5 B4 T4 S5 F6 B5 T5 S6 F7 B6 T6
          S7 B7 T7
    """)


def test_section_6_the_worked_example_with_input_passes() -> None:
    """The paper writes IF for E and IB for D."""
    assert [lane(built("vocab-1f1b", p=4, m=8, algorithm=2), 3)] == picture("""
        3 E0 E1 E2 E3 E4 F0 S0 F1 B0 T0 S1 F2 B1 T1 S2 F3 B2 T2 S3 E5 F4 B3 T3 S4 E6 F5 B4 T4 S5
          E7 D0 F6 B5 T5 S6 D1 F7 B6 T6 S7 D2 B7 D3 D4 D5 D6 D7 T7
    """)


def test_section_6_which_devices_let_a_forward_go_first_for_a_backward_of_two_forwards() -> None:
    found = bundle_orders(8, Fraction(1), Fraction(2))
    assert " ".join(found) == "BSF BFS BSF BSF BFS BSF BSF BSF"
    assert extra_bundles(found) == [5, 5, 4, 3, 3, 2, 1, 0]


@pytest.mark.parametrize(("algorithm", "peak"), [(1, (6, 5, 4, 3)), (2, (5, 4, 3, 2))])
def test_section_6_time_and_memory_of_the_worked_example(
    algorithm: int, peak: tuple[int, ...]
) -> None:
    timeline = at(algorithm, (4, 8), S=QUARTER, T=QUARTER)
    assert timeline.makespan == 37 == 8 * Fraction(7, 2) + 9
    assert timeline.peak == peak


@pytest.mark.matrix
@each_case("p", range(2, 17))
@each_case("algorithm", [1, 2])
@each_case("vocabulary", [(0, 0), (QUARTER, QUARTER), (Fraction(1, 3), 2), (7, 5)])
def test_section_7_the_bubble_is_that_of_1f1b_for_any_time_of_s_and_t(
    algorithm: int, p: int, vocabulary: tuple[Fraction, Fraction]
) -> None:
    for m in (p, p + 1, 2 * p + 3):
        timeline = at(algorithm, (p, m), S=vocabulary[0], T=vocabulary[1])
        assert timeline.makespan == m * (3 + sum(vocabulary)) + (p - 1) * 3
        assert timeline.peak == tuple(min(p - r + 3 - algorithm, m) for r in range(p))


@pytest.mark.long
@each_case("backward", [1, Fraction(5, 4), Fraction(3, 2), Fraction(19, 10), 3])
def test_the_bubble_is_that_of_1f1b_for_any_backward_that_is_no_shorter_than_a_forward(
    backward: Fraction,
) -> None:
    """The published order of algorithm 1 has it only where B is a multiple of F."""
    for p in range(2, 17):
        timeline = at(1, (p, 2 * p), I=backward, W=0, S=QUARTER, T=QUARTER)
        assert timeline.makespan == 2 * p * (1 + backward + 2 * QUARTER) + (p - 1) * (1 + backward)


@pytest.mark.parametrize("algorithm", [1, 2])
def test_input_passes_cost_no_more_than_their_time(algorithm: int) -> None:
    for p in range(1, 9):
        m = 2 * p
        timeline = at(algorithm, (p, m), S=QUARTER, T=QUARTER, E=Fraction(1, 8), D=Fraction(1, 8))
        work = m * (3 + 3 * QUARTER)
        assert work <= timeline.makespan <= work + (p - 1) * 3


@each_case("algorithm", [1, 2])
@each_case("p", [2, 4, 7])
def test_a_device_is_at_most_two_microbatches_ahead_with_the_embedding(
    p: int, algorithm: int
) -> None:
    """What E has written and the first stage has not read, seen from the first device's lane."""
    waiting = 0
    for op in built("vocab-1f1b", p=p, m=3 * p, algorithm=algorithm).lane(0):
        waiting += {"E": 1, "F": -1}.get(op.kind, 0)
        assert 0 <= waiting <= 2


def test_a_backward_without_time_still_has_an_order() -> None:
    assert at(1, (3, 4), F=0, I=0, W=0).makespan == 0
    assert at(2, (4, 8), F=3, I=1, W=0).makespan >= 8 * 4 + 3 * 4

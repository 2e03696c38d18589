from fractions import Fraction

from hypothesis import given, settings

from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.schedules import Case
from penstock.schedules.generators.board import Board, Budget
from penstock.sim import simulate
from schedules.generators.constructed import Row, rows
from schedules.measured import cost


def test_a_budget_is_the_prices_of_a_stage_in_whole_numbers() -> None:
    case = Case(2, 4, v=2, F=Fraction(1, 3), hop=Fraction(1, 4), act=Fraction(3), stash=Fraction(1))
    budget = Budget.of(case, limit=Fraction(5))
    assert (budget.F, budget.I, budget.W, budget.hop) == (2, 6, 6, 3)  # ticks of 1/12
    assert (budget.act, budget.stash, budget.limit) == (3, 1, 10)  # halves
    assert budget.unit == 3


def test_idle_time_counts_from_the_first_op_and_a_hop_only_between_devices() -> None:
    board = Board([0, 1, 1], 1, Budget(F=2, I=3, W=1, hop=5, act=1, stash=1, limit=9))
    for stage in range(3):
        board.place_forward(stage)
    assert (board.clock, board.idle) == ([2, 11], [0, 0])
    for stage in reversed(range(3)):
        board.place_backward(stage)
    assert (board.clock, board.idle, board.worst) == ([25, 17], [20, 0], 20)


def test_weight_gradients_fill_gaps_and_make_room_oldest_first() -> None:
    board = Board([0], 4, Budget(F=1, I=1, W=2, hop=0, act=2, stash=1, limit=6))
    for _ in range(3):
        board.place_forward(0)
    board.place_backward(0)
    board.place_backward(0)
    assert (board.clock, board.held) == ([5], [4])
    assert board.fill(0, arrival=8) == 1
    assert board.lanes[0][-1] == ("W", 0, 0, 0)
    board.room_for_forward(0)
    assert list(board.due[0]) == [(0, 1)]
    board.flush(0)
    assert board.held == [2]


@settings(max_examples=60, deadline=None)
@given(rows)
def test_the_clock_of_a_constructor_is_that_of_the_simulator(row: Row) -> None:
    board, shape = row.construct(), Shape.even(row.p, row.m)
    timeline = simulate(Schedule.of("built", shape, board.lanes), cost(row.times, hop=row.hop))
    assert timeline.span == row.m * sum(row.times) + board.worst
    assert timeline.makespan == max(board.clock)

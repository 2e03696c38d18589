from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.schedules import Case
from penstock.schedules.generators.board import Board, Budget
from penstock.schedules.generators.zero_bubble_search import Switches, construct
from penstock.sim import simulate
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
@given(
    times=st.tuples(*[st.integers(1, 9)] * 3),
    hop=st.integers(0, 5),
    p=st.integers(1, 5),
    m=st.integers(1, 9),
    alive=st.integers(1, 12),
    setting=st.tuples(*[st.booleans()] * 3),
)
def test_the_clock_of_a_constructor_is_that_of_the_simulator(
    times: tuple[int, int, int],
    hop: int,
    p: int,
    m: int,
    alive: int,
    setting: tuple[bool, bool, bool],
) -> None:
    board = construct(p, m, Budget(*times, hop, 2, 1, 2 * alive), Switches(*setting))
    timeline = simulate(Schedule.of("built", Shape.even(p, m), board.lanes), cost(times, hop=hop))
    assert timeline.span == m * sum(times) + board.worst
    assert timeline.makespan == max(board.clock)

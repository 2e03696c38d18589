"""The constructor of zero-bubble orders for measured times under a memory limit.

Which order has the shortest longest device depends on the times of F, I and W, on the latency
between devices and on the memory. The constructor builds an order microbatch by microbatch and
decides at every op by the clocks of the board; where a choice can help or hurt, a switch says which
way it goes, and all eight settings are tried. Source: arXiv:2401.10241, section 3, and the facts of
its public code where the paper leaves ties open.
"""

from itertools import product
from typing import NamedTuple

from penstock.schedules.generators.board import Board, Budget
from penstock.schedules.generators.streams import PlainOp


class Switches(NamedTuple):
    """Choices that help some times and hurt others."""

    wait_before_first: bool
    """A stage may idle a little before its first input gradient, instead of delaying it."""
    backward_first: bool
    """A forward is left out of a round where it would delay the next input gradient."""
    fill_greedily: bool
    """A gap shorter than a weight gradient takes one even if the device could afford to idle."""


def search_zero_bubble(devices: int, microbatches: int, budget: Budget) -> list[list[PlainOp]]:
    """The lanes with the shortest longest device among those of all settings."""
    boards = (
        construct(devices, microbatches, budget, Switches(*setting))
        for setting in product((True, False), repeat=3)
    )
    return min(boards, key=lambda board: board.worst).lanes


def construct(devices: int, microbatches: int, budget: Budget, switches: Switches) -> Board:
    """One order: the first microbatch with its warm-up, then a round for each of the others."""
    board = Board(range(devices), microbatches, budget)
    _first_round(board, _warmup(board, switches))
    for _ in range(1, microbatches):
        _forward_pass(board, _forwards_wanted(board, switches), switches)
        _backward_pass(board, switches)
    for stage in board.home:
        board.flush(stage)
    return board


def _warmup(board: Board, switches: Switches) -> list[int]:
    """Place the first forwards; how many more each stage runs before its first input gradient."""
    budget, stages = board.budget, board.home
    for stage in stages:
        board.place_forward(stage)
    more = [0] * len(stages)
    ready = board.clock[-1] + budget.I
    for stage in reversed(stages[:-1]):
        arrival, clock, held = ready + budget.hop, board.clock[stage], board.held[stage]
        latest = arrival - budget.F if switches.wait_before_first else arrival - 1
        while (
            more[stage] < board.forwards_left(stage)
            and held + budget.unit <= budget.limit
            and clock <= latest
        ):
            more[stage] += 1
            clock, held = clock + budget.F, held + budget.act
        ready = max(clock, arrival) + budget.I
    _make_decreasing(board, more)
    return more


def _make_decreasing(board: Board, more: list[int]) -> None:
    """Every stage runs ahead of the next one, unless it has run out of forwards."""
    for stage in board.home[1:]:
        while 0 < more[stage] < board.forwards_left(stage) and more[stage] >= more[stage - 1]:
            more[stage] -= 1


def _first_round(board: Board, more: list[int]) -> None:
    for stage in board.home:
        for _ in range(more[stage]):
            board.place_forward(stage)
    for stage in reversed(board.home):
        board.place_backward(stage)


def _forwards_wanted(board: Board, switches: Switches) -> list[bool]:
    """Which stages get a forward in this round: none without one for the stage behind it."""
    wanted = [
        board.forwards_left(stage) > 0
        and not (switches.backward_first and _better_without(board, stage))
        for stage in board.home
    ]
    for stage in reversed(board.home[:-1]):
        wanted[stage] = wanted[stage] and wanted[stage + 1]
    return wanted


def _better_without(board: Board, stage: int) -> bool:
    """Whether a forward would delay the input gradient, on a stage that is two forwards ahead."""
    below = stage + 1
    if below == len(board.home) or board.forwards(stage) < board.forwards(below) + 2:
        return False
    budget, clock = board.budget, board.clock[stage]
    arrival = board.clock[below] + budget.F + budget.I + budget.hop
    if clock >= arrival:
        return True
    if clock + budget.F + _weights_for_room(board, stage) * budget.W <= arrival:
        return False
    return arrival - clock <= board.worst - board.idle[stage]


def _weights_for_room(board: Board, stage: int) -> int:
    """Weight gradients that must run before a forward fits into the memory."""
    budget = board.budget
    excess = board.held[stage] + budget.unit - budget.limit
    if excess <= 0:
        return 0
    return min(-(-excess // budget.stash), len(board.due[stage]))


def _forward_pass(board: Board, wanted: list[bool], switches: Switches) -> None:
    for stage in board.home:
        if wanted[stage]:
            board.room_for_forward(stage)
            _fill_gap(board, stage, board.forward_arrival(stage), switches)
            board.place_forward(stage)


def _backward_pass(board: Board, switches: Switches) -> None:
    for stage in reversed(board.home):
        board.room_for_backward(stage)
        _fill_gap(board, stage, board.backward_arrival(stage), switches)
        if stage == 0 and not board.forwards_left(0):
            board.flush(0)  # nobody waits for the first stage's input gradients
        board.place_backward(stage)


def _fill_gap(board: Board, stage: int, arrival: int, switches: Switches) -> None:
    """Run weight gradients until something arrives, and one beyond it if idling costs more."""
    gap = board.fill(stage, arrival)
    affordable = gap <= board.worst - board.idle[stage]
    if gap > 0 and board.due[stage] and (switches.fill_greedily or not affordable):
        board.place_weight(stage)

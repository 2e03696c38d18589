"""Attention work that devices lend each other, against the worked loads of the paper's code."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, product

import pytest

from loops import each_case
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.cost.causal import CausalCost
from penstock.schedules.generators.exchange import Move, level, pair_up
from penstock.sim import simulate
from schedules.picture import built, lanes, priced

Rule = Callable[[Sequence[int]], list[Move]]
UNLIMITED = 100


def pairs(loads: Sequence[int]) -> list[Move]:
    return pair_up(loads, UNLIMITED)


def volumes(loads: Sequence[int], moves: list[Move]) -> list[int]:
    """Slices that each device takes (above 0) or gives away."""
    found = [0] * len(loads)
    for heavy, light, slices in moves:
        found[heavy] -= slices
        found[light] += slices
    return found


def after(loads: Sequence[int], moves: list[Move]) -> list[int]:
    return [load + more for load, more in zip(loads, volumes(loads, moves))]


@pytest.mark.parametrize(
    ("loads", "moved", "left"),
    [
        ([7, 6, 5, 4], [-1, 0, 0, 1], [6, 6, 5, 5]),
        ([1, 0, 7, 6], [2, 3, -3, -2], [3, 3, 4, 4]),
        ([0, 7, 6, 5], [3, -3, 0, 0], [3, 4, 6, 5]),
    ],
)
def test_section_5_the_worked_steps(loads: list[int], moved: list[int], left: list[int]) -> None:
    assert volumes(loads, pairs(loads)) == moved
    assert after(loads, pairs(loads)) == left


def period(p: int, k: int) -> list[list[int]]:
    """Loads of the devices at the steps of one sequence, in the middle of a batch."""
    return [[(step - device) % k for device in range(p)] for step in range(k)]


def longest(p: int, k: int, rule: Rule) -> Fraction:
    """Sum of the largest loads; a device's own slice counts one half."""
    return sum((max(after(loads, rule(loads))) + Fraction(1, 2) for loads in period(p, k)),
               Fraction(0))  # fmt: skip


@pytest.mark.parametrize(
    ("p", "k", "before", "paired", "levelled", "mean"),
    [(4, 8, 50, 38, 36, 32), (8, 8, 60, 36, 36, 32), (8, 16, 212, 148, 136, 128)],
)
def test_section_5_the_largest_loads_of_one_period(
    p: int, k: int, before: int, paired: int, levelled: int, mean: int
) -> None:
    assert longest(p, k, lambda loads: []) == before
    assert longest(p, k, pairs) == paired
    assert longest(p, k, level) == levelled
    assert sum(Fraction(sum(loads), p) + Fraction(1, 2) for loads in period(p, k)) == mean


@each_case("rule", [pairs, level])
@each_case("p", [1, 2, 3, 4, 5])
def test_section_10_work_is_conserved_and_nobody_lends_what_it_does_not_have(
    p: int, rule: Rule
) -> None:
    for loads in product(range(6), repeat=p):
        moves = rule(loads)
        assert sum(after(loads, moves)) == sum(loads)
        lent = [sum(move.slices for move in moves if move.heavy == d) for d in range(p)]
        assert all(count <= load for count, load in zip(lent, loads))
        assert not {move.heavy for move in moves} & {move.light for move in moves}


@each_case("p", [2, 3, 4, 5])
def test_section_10_pairs_meet_halfway_and_nobody_is_in_two(p: int) -> None:
    for loads in product(range(6), repeat=p):
        moves, left = pairs(loads), after(loads, pairs(loads))
        partners = [device for move in moves for device in move[:2]]
        assert len(partners) == len(set(partners))
        for heavy, light, _ in moves:
            assert 0 <= left[heavy] - left[light] <= 1
        moved, rising = volumes(loads, moves), sorted(range(p), key=lambda d: loads[d])
        for one, other in zip(rising, reversed(rising)):
            assert moved[one] == -moved[other]
            assert abs(left[one] - left[other]) <= 1


@pytest.mark.parametrize("p", [2, 3, 4])
def test_levelling_is_as_equal_as_whole_slices_can_be(p: int) -> None:
    for loads in product(range(7), repeat=p):
        left = after(loads, level(loads))
        assert max(left) - min(left) <= 1
        assert max(left) <= max(after(loads, pairs(loads)))


def test_a_threshold_clips_what_is_lent() -> None:
    assert volumes([1, 0, 7, 6], pair_up([1, 0, 7, 6], most=1)) == [1, 1, -1, -1]
    most = [loan.slices for loan in built("slimpipe-exchange", p=4, m=2, k=8, most=2).loans]
    assert max(most) == 2


def test_the_order_is_that_without_exchange() -> None:
    for name in ("slimpipe-exchange", "slimpipe-level"):
        assert lanes(built(name, p=4, m=3, k=8)) == lanes(built("slimpipe", p=4, m=3, k=8))


@pytest.mark.parametrize(("v", "k"), [(1, 8), (2, 8)])
def test_section_5_nothing_is_exchanged_while_a_device_is_idle(v: int, k: int) -> None:
    """Not in the first steps, where s + 1 < p - r, nor in the last, where n - s <= r."""
    p, m = 4, 2
    units = k * v
    schedule = built("slimpipe-exchange", p=p, m=m, v=v, k=k)
    order = {kind: [numbers(schedule, r, kind) for r in range(p)] for kind in "FB"}
    for heavy, light, _ in schedule.loans:
        for op in (heavy, light):
            r = op.stage % p
            ahead = r if op.kind == "F" else p - 1 - r
            place = order[op.kind][r][op]
            assert not place + 1 < p - ahead
            assert not m * units - place <= ahead


def numbers(schedule: Schedule, device: int, kind: str) -> dict[Op, int]:
    """The place of each op among those of its kind."""
    ops = [op for op in schedule.lane(device) if op.kind == kind]
    return {op: place for place, op in enumerate(ops)}


def causal(name: str, p: int, m: int, k: int, v: int = 1) -> Fraction:
    """Time of a step whose work is all causal attention."""
    return simulate(built(name, p=p, m=m, k=k, v=v), CausalCost(attention=Fraction(1))).makespan


def test_section_4_exchange_saves_two_fifths_of_what_unequal_slices_cost() -> None:
    names = ("slimpipe", "slimpipe-exchange", "slimpipe-level")
    found = [causal(name, p=4, m=4, k=8) for name in names]
    assert found == [Fraction(1029, 64), Fraction(951, 64), Fraction(927, 64)]
    assert f"{float(found[0]):.2f}" == "16.08"
    assert priced(built("slimpipe", p=4, m=4, k=8)).makespan == Fraction("13.125")


@each_case("name", ["slimpipe-exchange", "slimpipe-level"])
@each_case("v", [1, 2])
def test_section_10_with_more_slices_time_approaches_that_of_equal_slices(
    name: str, v: int
) -> None:
    p, m = 4, 4
    over = [
        causal(name, p, m, k, v) / ((m + Fraction(p - 1, k * v)) * 3) - 1 for k in (8, 16, 32, 64)
    ]
    assert all(later < earlier * Fraction(7, 10) for earlier, later in pairwise(over))
    assert over[-1] < Fraction(27, 1000)


@each_case(
    ("part", "plain", "paired", "levelled"),
    [("0.25", "13.371", "13.559", "13.465"), ("0.5", "13.828", "13.992", "13.805"),
     ("0.75", "14.777", "14.426", "14.145"), ("1", "16.078", "14.859", "14.484")],
)  # fmt: skip
def test_the_lock_step_of_loans_pays_where_attention_is_most_of_the_work(
    part: str, plain: str, paired: str, levelled: str
) -> None:
    """The table of the page: p = 4, m = 4, k = 8."""
    cost = CausalCost(attention=Fraction(part))
    names = ("slimpipe", "slimpipe-exchange", "slimpipe-level")
    found = [simulate(built(name, p=4, m=4, k=8), cost).makespan for name in names]
    assert [f"{float(time):.3f}" for time in found] == [plain, paired, levelled]


def test_memory_stays_flat() -> None:
    cost = CausalCost(attention=Fraction(1))
    for name in ("slimpipe", "slimpipe-exchange", "slimpipe-level"):
        peak = simulate(built(name, p=4, m=2, k=8), cost).peak
        assert peak == tuple(1 + Fraction(2 * (3 - r), 8) for r in range(4))

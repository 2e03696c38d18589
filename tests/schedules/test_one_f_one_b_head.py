"""The output layer on the last device, and layers moved away from it: arXiv:2411.05288."""

from fractions import Fraction
from itertools import product

import pytest

from loops import each_case
from penstock.schedules import Case
from penstock.schedules.one_f_one_b_head import moved_layers
from schedules.picture import built, lanes, priced


def slowest(layers: tuple[int, ...] | list[int], head: Fraction) -> Fraction:
    return max(*layers[:-1], layers[-1] + head)


def test_all_wait_for_the_output_layer_with_every_microbatch() -> None:
    timeline = priced(built("1f1b-head", p=4, m=8, layers=4, head=2))
    assert timeline.makespan == 8 * Fraction(6, 4) * 3 + 3 * 3
    assert timeline.peak == (4, 3, 2, 1)


def test_the_weight_of_the_output_layer_in_layers() -> None:
    """V/(12h + 2s) for a vocabulary of 128K, a width of 4096 and 4096 tokens."""
    head = Fraction(131072, 12 * 4096 + 2 * 4096)
    assert head == Fraction(16, 7)
    assert moved_layers(Case(4, 8, options={"layers": 8, "head": head})) == [8, 9, 9, 6]
    assert moved_layers(Case(4, 8, options={"layers": 2, "head": head})) == [2, 3, 3, 0]


@each_case("head", ["1/2", "1", "16/7", "4", "9"])
@each_case(("p", "layers"), [(2, 3), (3, 2), (4, 2), (3, 3)])
def test_no_other_way_to_move_layers_is_faster(p: int, layers: int, head: str) -> None:
    weight, total = Fraction(head), p * layers
    found = moved_layers(Case(p, 2 * p, options={"layers": layers, "head": weight}))
    every = [split for split in product(range(total + 1), repeat=p) if sum(split) == total]
    assert sum(found) == total
    assert slowest(found, weight) == min(slowest(split, weight) for split in every)


def test_moving_layers_is_faster_and_costs_memory_on_the_first_devices() -> None:
    plain = priced(built("1f1b-head", p=4, m=8, layers=4, head=4))
    better = priced(built("1f1b-redis", p=4, m=8, layers=4, head=4))
    assert better.makespan < plain.makespan
    assert better.peak[0] > plain.peak[0]
    assert better.peak[3] < plain.peak[3]


@pytest.mark.parametrize("name", ["1f1b-head", "1f1b-redis"])
def test_the_order_is_that_of_1f1b(name: str) -> None:
    assert lanes(built(name, p=4, m=8)) == lanes(built("1f1b", p=4, m=8))

"""A balanced split is the fastest of all splits."""

from itertools import combinations_with_replacement, pairwise

import pytest

from penstock.arch.balanced_split import balance_layers, faster_split, slowest_device
from penstock.arch.layer_split import even_split

LOOPED, WAVE = (0, 1, 2, 0, 1, 2), (0, 1, 2, 2, 1, 0)


@pytest.mark.parametrize("homes", [(0, 1, 2, 3), LOOPED, WAVE])
@pytest.mark.parametrize("ends", [(0.0, 0.0), (0.1, 2.2), (1.5, 0.5), (0.0, 7.0)])
def test_no_split_is_faster(homes: tuple[int, ...], ends: tuple[float, float]) -> None:
    layers, stages = 9, len(homes)
    more = [ends[0], *[0.0] * (stages - 2), ends[1]]
    found = balance_layers(layers, more, homes)
    assert sum(found) == layers
    every = (
        tuple(end - start for start, end in pairwise((0, *borders, layers)))
        for borders in combinations_with_replacement(range(layers + 1), stages - 1)
    )
    best = min(slowest_device(counts, more, homes) for counts in every)
    assert slowest_device(found, more, homes) == pytest.approx(best, abs=1e-9)


def test_stages_of_one_device_are_even() -> None:
    assert balance_layers(12, (0.0,) * 6, WAVE) == (2,) * 6
    assert balance_layers(12, (0.0, 0.0, 0.0, 0.0, 0.0, 2.0), LOOPED)[-1] == 1


@pytest.mark.parametrize("head", [0.0, 0.4, 0.9])
def test_a_light_head_leaves_an_even_split(head: float) -> None:
    """Moving a layer away would make another device slower."""
    assert faster_split(32, (0.0, 0.0, 0.0, head), (0, 1, 2, 3)) == ()


def test_the_first_stages_take_what_the_head_leaves() -> None:
    assert even_split(6, 4) == (2, 2, 1, 1)
    assert faster_split(6, (0.0, 0.0, 0.0, 1.5), (0, 1, 2, 3)) == (2, 2, 2, 0)

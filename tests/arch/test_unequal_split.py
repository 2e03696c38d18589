"""Layers that are not equal, cut so that the slowest device is as fast as it can be."""

from itertools import accumulate, combinations_with_replacement

import numpy as np

from penstock.arch.unequal_split import split_unequal


def slowest(counts: tuple[int, ...], loads: list[float], more: list[float]) -> float:
    ends = [0, *accumulate(counts)]
    return max(sum(loads[ends[at] : ends[at + 1]]) + other for at, other in enumerate(more))


def every_split(layers: int, stages: int) -> list[tuple[int, ...]]:
    places = combinations_with_replacement(range(layers + 1), stages - 1)
    return [tuple(np.diff([0, *ends, layers]).tolist()) for ends in places]


def test_no_split_has_a_faster_slowest_stage() -> None:
    random = np.random.default_rng(1)
    for _ in range(30):
        loads = random.integers(1, 9, 7).astype(float).tolist()
        more = random.integers(0, 5, 3).astype(float).tolist()
        found = split_unequal(loads, more, range(3))
        assert sum(found) == 7
        best = min(slowest(each, loads, more) for each in every_split(7, 3))
        assert slowest(found, loads, more) == best


def test_devices_with_several_stages_are_evened_out() -> None:
    """Stages 0 and 3 are on one device: of ten equal layers it gets as many as the other."""
    found = split_unequal([1.0] * 10, [0.0, 0.0, 0.0, 2.0], [0, 1, 1, 0])
    assert found[0] + found[3] + 2 == found[1] + found[2]


def test_a_fused_layer_is_not_divided() -> None:
    assert split_unequal([1, 1, 8, 1, 1, 1], [0, 0, 0], [0, 1, 2]) == (2, 1, 3)

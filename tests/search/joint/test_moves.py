from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.search.joint.moves import (
    CutAndHomes,
    balance,
    carry_layers,
    evenest,
    exchange_homes,
    families,
    join_stages,
    shift_boundaries,
)

weights = st.lists(st.integers(0, 9), min_size=1, max_size=9)


@settings(deadline=None)
@given(weights, st.data())
def test_the_evenest_cut_is_the_evenest_of_all(layers: list[int], data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, len(layers)))
    column = np.array(layers)

    def heaviest(ends: tuple[int, ...]) -> int:
        return max(int(piece.sum()) for piece in np.split(column, ends))

    split = evenest(column, stages)
    least = min(map(heaviest, combinations(range(1, len(layers)), stages - 1)))
    assert min(split) >= 1
    assert sum(split) == len(layers)
    assert heaviest(tuple(np.cumsum(split)[:-1])) == least


@settings(deadline=None)
@given(weights, st.integers(1, 3), st.integers(1, 3))
def test_a_balanced_cut_has_a_layer_for_every_stage(
    layers: list[int], devices: int, chunks: int
) -> None:
    for placement in families(devices, chunks):
        if len(placement) <= len(layers):
            split = balance(np.array(layers), placement)
            assert (len(split), sum(split)) == (len(placement), len(layers))
            assert min(split) >= 1


def test_a_balanced_cut_evens_out_the_devices_of_the_example() -> None:
    layers = np.array([1] * 16 + [4])
    split = balance(layers, (0, 1, 2, 3, 3, 2, 1, 0))
    stages = np.add.reduceat(layers, np.cumsum([0, *split])[:-1])
    assert np.bincount([0, 1, 2, 3, 3, 2, 1, 0], stages).tolist() == [5, 5, 5, 5]


def test_named_placements() -> None:
    assert list(families(3, 3)) == [
        (0, 1, 2),
        (0, 1, 2, 0, 1, 2),
        (0, 1, 2, 2, 1, 0),
        (0, 1, 2, 0, 1, 2, 0, 1, 2),
        (0, 1, 2, 2, 1, 0, 0, 1, 2),
    ]
    assert list(families(1, 2)) == [(0,), (0, 0)]


def test_one_boundary_moves() -> None:
    assert sorted(shift_boundaries((1, 3, 2))) == [(1, 2, 3), (1, 4, 1), (2, 2, 2)]
    assert (4, 1, 2) in set(shift_boundaries((1, 4, 2), most=3))


def test_a_layer_is_carried_over_other_stages() -> None:
    assert sorted(carry_layers((1, 3, 2))) == [(2, 3, 1)]


def test_two_stages_exchange_their_devices() -> None:
    assert sorted(exchange_homes((0, 1, 0))) == [(0, 0, 1), (1, 0, 0)]


@pytest.mark.parametrize(
    "layout", [CutAndHomes((1, 2, 3), (0, 1, 1)), CutAndHomes((2, 2), (0, 1))], ids=str
)
def test_joined_stages_leave_no_device_without_one(layout: CutAndHomes) -> None:
    for split, placement in join_stages(layout):
        assert sum(split) == sum(layout.split)
        assert set(placement) == set(layout.placement)
        assert len(split) == len(placement) == len(layout.split) - 1


def test_neighbouring_stages_become_one() -> None:
    layout = CutAndHomes((1, 2, 3), (0, 1, 1))
    assert set(join_stages(layout)) == {CutAndHomes((3, 3), (0, 1)), CutAndHomes((1, 5), (0, 1))}

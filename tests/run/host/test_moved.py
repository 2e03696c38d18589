"""A share of what was saved goes to the host and comes back bit for bit."""

import weakref
from fractions import Fraction
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.piece import Piece
from penstock.model.stages.saved_tensors import SavedStorages
from penstock.run.host.moved import MovedActivation, chosen
from penstock.run.host.tier import HostTier

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


def _piece(slices: int) -> Piece:
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    return Piece(0, 0, slices, 0, 4, 4 * slices, tokens, tokens, (), 1.0)


class Saved(NamedTuple):
    """What a stage might have saved."""

    layers: list[AttentionSaved]
    out: Tensor | None


def _saved() -> Saved:
    whole = torch.randn(6, 8)
    memory = torch.randn(2, 10, dtype=torch.float64)
    shared = whole.t()
    attention = AttentionSaved(whole[:3], memory[0], memory[1], shared, torch.randn(5))
    return Saved([attention, attention._replace(q=torch.randn(70))], None)


def _flat(saved: Saved) -> list[Tensor]:
    return [tensor for layer in saved.layers for tensor in layer]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=9), st.fractions(0, 1))
def test_a_share_is_met_to_the_byte_and_one_storage_at_most_is_split(
    sizes: list[int], share: Fraction
) -> None:
    moved = chosen(sizes, share)
    assert sum(bytes_ for _, bytes_ in moved) == int(sum(sizes) * share)
    assert len({number for number, _ in moved}) == len(moved)
    assert sum(bytes_ < sizes[number] for number, bytes_ in moved) <= 1
    assert all(bytes_ <= sizes[number] for number, bytes_ in moved)


@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 2), Fraction(1, 7)])
def test_what_comes_back_is_what_left_with_its_views(share: Fraction) -> None:
    saved, tier = _saved(), HostTier(CPU)
    right = [tensor.clone() for tensor in _flat(saved)]
    strides = [tensor.stride() for tensor in _flat(saved)]
    moved = MovedActivation(SavedStorages.of(saved, _piece(1)), share, tier)
    del saved
    moved.copy_out()
    moved.let_go()
    back = moved.take_room()
    moved.copy_in()
    moved.end()
    assert all(torch.equal(a, b) for a, b in zip(_flat(back), right))
    assert [tensor.stride() for tensor in _flat(back)] == strides
    first = back.layers[0]
    assert first.q.untyped_storage().data_ptr() == first.out.untyped_storage().data_ptr()
    assert tier.pool.held == 0


def test_a_storage_that_several_entries_share_is_moved_once() -> None:
    saved = _saved()
    storages = SavedStorages.of(saved, _piece(1)).storages
    assert sorted(map(len, storages)) == [20, 160, 192, 280]


def test_keys_and_values_of_a_slice_stay_where_they_are() -> None:
    saved, tier = _saved(), HostTier(CPU)
    keys = saved.layers[0].k
    moved = MovedActivation(SavedStorages.of(saved, _piece(2)), Fraction(1), tier)
    assert moved.moved_bytes == 20 + 192 + 280
    moved.copy_out()
    moved.let_go()
    assert moved.take_room().layers[0].k.data_ptr() == keys.data_ptr()


def test_memory_is_free_when_it_is_let_go_of_and_not_before() -> None:
    saved, tier = _saved(), HostTier(CPU)
    gone = weakref.ref(saved.layers[1].q.untyped_storage())
    moved = MovedActivation(SavedStorages.of(saved, _piece(1)), Fraction(1), tier)
    del saved
    moved.copy_out()
    assert gone() is not None
    moved.let_go()
    assert gone() is None


def test_a_copy_in_fills_what_the_copy_before_it_has_emptied() -> None:
    tier = HostTier(CPU)
    first, second = (
        MovedActivation(SavedStorages.of(_saved(), _piece(1)), Fraction(1), tier) for _ in range(2)
    )
    first.copy_out()
    first.let_go()
    left = {storage.data_ptr() for storage in second._leaving.values()}
    back = first.take_room()
    assert {tensor.untyped_storage().data_ptr() for tensor in _flat(back)} == left
    second.copy_out()
    first.copy_in()
    second.let_go()
    assert tier.leaving.hand_on(192) is None

"""What a rank of a ring keeps of a microbatch."""

import pytest
import torch
from torch import Tensor

from model.attention.dense import Case
from penstock.errors import RunError
from penstock.model.attention.ring_memory import KeyValueBlock, RingGradients, RingMemory

pytestmark = pytest.mark.torch

CASE = Case((4, 6, 2), ((0,), (0,)), kv_heads=3, heads=3, size=5)
OWN = (2, 3, 1)
"""Tokens of each slice that a rank has."""


def filled() -> tuple[RingMemory, list[Tensor]]:
    memory = RingMemory(2, CASE.rows, CASE.kv_heads, 8, CASE.size, dtype=torch.float64)
    keys = list(CASE.inputs()[1][:, :, : sum(OWN)].split(OWN, 2))
    for piece, k in zip(CASE.pieces(), keys):
        memory.write(1, piece, k, -k)
    return memory, keys


def test_only_own_tokens_take_room() -> None:
    memory, _ = filled()
    assert memory.nbytes == 2 * 2 * 8 * CASE.rows * CASE.kv_heads * CASE.size * 8


def test_slices_lie_behind_each_other_and_are_found_again() -> None:
    memory, keys = filled()
    for piece, k in zip(CASE.pieces(), keys):
        own = memory.own(1, piece)
        assert torch.equal(own[0], k)
        assert torch.equal(own[1], -k)
    block = memory.last(1, CASE.pieces()[1], 4)
    assert block.keys.is_contiguous()
    assert torch.equal(block.by_head()[0], torch.cat(keys, 2)[:, :, 1:5])
    assert [kept[:2] for kept in memory.kept(CASE.pieces()[1])] == [(0, 4), (4, 10)]


def test_writing_a_slice_again_leaves_the_others() -> None:
    memory, keys = filled()
    memory.write(1, CASE.pieces()[1], keys[1] + 1, keys[1])
    whole = torch.cat([keys[0], keys[1] + 1, keys[2]], 2)
    assert torch.equal(memory.last(1, CASE.pieces()[2], 6).by_head()[0], whole)


def test_a_slice_that_comes_too_early_is_refused() -> None:
    memory = RingMemory(1, CASE.rows, CASE.kv_heads, 8, CASE.size)
    k = torch.zeros(CASE.rows, CASE.kv_heads, 3, CASE.size)
    with pytest.raises(RunError, match="slice 1 of microbatch 0 comes to a memory that has 0 "):
        memory.write(0, CASE.pieces()[1], k, k)


def test_more_tokens_than_there_is_room_for_are_refused() -> None:
    memory = RingMemory(1, CASE.rows, CASE.kv_heads, 2, CASE.size)
    k = torch.zeros(CASE.rows, CASE.kv_heads, 3, CASE.size)
    with pytest.raises(RunError, match=r"3 tokens of slice 0 .* room for 2"):
        memory.write(0, CASE.pieces()[0], k, k)


def block(*values: float) -> KeyValueBlock:
    keys = torch.tensor(values, dtype=torch.float32)[:, None, None, None]
    return KeyValueBlock(keys, 10 * keys)


def numbers(found: KeyValueBlock) -> list[float]:
    assert torch.equal(found.values, 10 * found.keys)
    return found.keys.flatten().tolist()


def test_what_slices_leave_is_added_where_it_belongs() -> None:
    """Three slices of one, two and three tokens; the last reaches them all, the middle one itself
    alone, so that what is left is the longer."""
    gradients = RingGradients(layers=2)
    assert gradients.nbytes == 0
    assert numbers(gradients.settle(0, block(1, 2, 3, 4, 5, 6), own=3)) == [4, 5, 6]
    assert gradients.nbytes == 2 * 3 * 4
    assert numbers(gradients.settle(0, block(20, 30), own=2)) == [22, 33]
    assert numbers(gradients.settle(0, block(100), own=1)) == [101]
    assert gradients.nbytes == 0


def test_layers_do_not_share_what_they_leave() -> None:
    gradients = RingGradients(layers=2)
    gradients.settle(0, block(1, 2), own=1)
    assert numbers(gradients.settle(1, block(5), own=1)) == [5]
    assert numbers(gradients.settle(0, block(5), own=1)) == [6]


def test_keys_that_lie_token_by_token_are_not_copied() -> None:
    k = torch.zeros(1, 4, 2, 3).transpose(1, 2)
    assert KeyValueBlock.of(k, k).keys.data_ptr() == k.data_ptr()

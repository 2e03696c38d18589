"""Every kernel for parts gives the same attention, however its parts are cut."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from loops import each
from model.attention.dense import Case, dense, relative
from penstock.model.attention import aten, folded, plain
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.reach import Reach
from penstock.model.attention.tiled import TensorInPieces, Tiled

pytestmark = pytest.mark.torch


def anything(*_: object) -> bool:
    return True


CPU = Tiled("cpu", anything, aten.cpu_forward, aten.cpu_backward)
FOLDED = Tiled("folded", anything, folded.folded_forward, folded.folded_backward)
PLAIN = Tiled("plain", anything, plain.plain_forward, plain.plain_backward)


@pytest.mark.long
@each("kernel", [CPU, FOLDED, PLAIN], ids=["cpu", "folded", "plain"])
@each("square", [1, 5, 64])
@each("block", [1, 7, 64])
def test_squares_and_blocks_do_not_change_the_result(
    kernel: Tiled, square: int, block: int
) -> None:
    """The last 11 of 30 tokens, of which 4 belong to the first document."""
    case = Case((30,), ((0, 23),), heads=4, kv_heads=2)
    q, k, v, g = case.inputs()
    reach, left = Reach(19, (4, 7)), torch.zeros(2, *k.shape, dtype=k.dtype)

    def leave(keys: range, dk: Tensor, dv: Tensor) -> None:
        left[0, :, :, keys.start : keys.stop] += dk
        left[1, :, :, keys.start : keys.stop] += dv

    back_end = replace(kernel, square=square, block=block)
    mine, late = q[:, :, 19:], g[:, :, 19:]
    out, lse = back_end.forward(mine, k, v, reach)
    dq, dk, dv = back_end.backward(late, AttentionSaved(mine, k, v, out, lse), reach, leave)
    early = g.clone()
    early[:, :, 19:] = 0  # what the other queries give to the keys
    expected, gradients = dense(case)
    others = _without(case, early)
    assert relative(out, expected[:, :, 19:]) <= 1e-13
    assert relative(dq, gradients[0][:, :, 19:]) <= 1e-13
    for own, past, exact, other in zip((dk, dv), left, gradients[1:], others):
        past[:, :, 19:] += own
        assert relative(past, exact - other) <= 1e-13


def _without(case: Case, g: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of keys and values from other gradients of the output."""
    q, k, v, _ = case.inputs()
    out, lse = PLAIN.forward(q, k, v, Reach(0, (23, 7)))
    _, dk, dv = PLAIN.backward(g, AttentionSaved(q, k, v, out, lse), Reach(0, (23, 7)), _refuse)
    return dk, dv


def _refuse(keys: range, dk: Tensor, dv: Tensor) -> None:
    raise AssertionError(keys)


def test_a_piece_that_is_the_whole_is_not_copied() -> None:
    whole = torch.ones(1, 2, 3, 4)
    gathered = TensorInPieces(3)
    gathered.store(range(3), whole)
    assert gathered.tensor is whole


def test_pieces_are_stored_and_added_where_they_belong() -> None:
    gathered = TensorInPieces(3)
    gathered.store(range(1), torch.full((1, 2, 1), 1.0))
    gathered.store(range(1, 3), torch.full((1, 2, 2), 2.0))
    gathered.add(range(2), torch.full((1, 2, 2), 10.0))
    assert gathered.tensor.tolist() == [[[11.0, 12.0, 2.0]] * 2]

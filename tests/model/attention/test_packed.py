"""Rows of documents: what a kernel for them is given, and where its gradients go."""

import pytest
import torch
from torch import Tensor

from model.attention.dense import Case, Sliced, relative
from penstock.model.attention import plain
from penstock.model.attention.aten import Gradients, Output
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.packed import Packed
from penstock.model.attention.reach import Reach
from penstock.model.attention.tiled import Tiled

pytestmark = pytest.mark.torch


def anything(*_: object) -> bool:
    return True


PLAIN = Tiled("plain", anything, plain.plain_forward, plain.plain_backward)


def ahead(q: Tensor, k: Tensor, v: Tensor, reach: Reach) -> Output:
    """A kernel for one row, [tokens, heads, head_size], made of one for parts."""
    out, lse = PLAIN.forward(_row(q), _row(k), _row(v), reach)
    return out[0].transpose(0, 1), lse[0]


def back(g: Tensor, q: Tensor, k: Tensor, v: Tensor, done: Output, reach: Reach) -> Gradients:
    past = torch.zeros(2, 1, k.shape[1], reach.past, k.shape[2], dtype=k.dtype)

    def leave(keys: range, dk: Tensor, dv: Tensor) -> None:
        past[0, :, :, keys.start : keys.stop] += dk
        past[1, :, :, keys.start : keys.stop] += dv

    seen = AttentionSaved(_row(q), _row(k), _row(v), _row(done[0]), done[1][None])
    dq, dk, dv = PLAIN.backward(_row(g), seen, reach, leave)
    found = (dq, torch.cat((past[0], dk), 2), torch.cat((past[1], dv), 2))
    one, two, three = (gradient[0].transpose(0, 1) for gradient in found)
    return one, two, three


def _row(tensor: Tensor) -> Tensor:
    return tensor.transpose(0, 1)[None]


@pytest.mark.parametrize(
    "documents",
    [((0,), (0,)), ((0, 3, 9, 10),), ((0, 12), (0, 5)), ((0, 6), (0, 6))],
    ids=["one", "several", "different", "at the slice"],
)
def test_a_kernel_for_rows_gives_what_a_kernel_for_parts_gives(
    documents: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case((6, 5, 7), documents, heads=4, kv_heads=2)
    by_parts = Sliced(case)
    expected = [by_parts.out, *by_parts.gradients()]
    packed = Packed("rows", anything, ahead, back)
    monkeypatch.setattr("penstock.model.attention.table.BACK_ENDS", (packed,))
    by_rows = Sliced(case)
    for ours, exact in zip([by_rows.out, *by_rows.gradients()], expected):
        assert relative(ours, exact) <= 1e-13

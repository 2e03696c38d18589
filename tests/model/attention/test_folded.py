"""Heads that share keys, computed as one."""

import pytest
import torch
from torch import Tensor

from model.attention.dense import Case, relative
from penstock.arch.layers.attention import FOLDED_BELOW
from penstock.model.attention.aten import Output, cpu_backward, cpu_forward
from penstock.model.attention.folded import folded_backward, folded_forward

pytestmark = pytest.mark.torch


def rectangle(heads: int, kv_heads: int, queries: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values and the gradient of the output; keys are as many as tokens."""
    case = Case((max(queries, 40),), ((0,), (0,)), heads=heads, kv_heads=kv_heads)
    q, k, v, g = case.inputs()
    return q[:, :, :queries], k, v, g[:, :, :queries]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 1), (6, 2), (3, 3)])
@pytest.mark.parametrize("queries", [1, 33, FOLDED_BELOW])
def test_folded_is_what_the_kernel_gives(heads: int, kv_heads: int, queries: int) -> None:
    q, k, v, g = rectangle(heads, kv_heads, queries)
    seen: Output = cpu_forward(q, k, v, False)
    for ours, plain in zip(folded_forward(q, k, v, False), seen):
        assert ours.shape == plain.shape
        assert relative(ours, plain) <= 1e-14
    pairs = zip(folded_backward(g, q, k, v, seen, False), cpu_backward(g, q, k, v, seen, False))
    for ours, plain in pairs:
        assert ours.shape == plain.shape
        assert relative(ours, plain) <= 1e-13


def test_what_is_folded_lies_token_by_token_again() -> None:
    q, k, v, g = rectangle(4, 2, 33)
    out, lse = folded_forward(q, k, v, False)
    dq, dk, dv = folded_backward(g, q, k, v, (out, lse), False)
    assert all(each.transpose(1, 2).is_contiguous() for each in (out, dq, dk, dv))


def test_a_triangle_is_not_folded() -> None:
    q, k, v, _ = rectangle(4, 2, 40)
    assert torch.equal(folded_forward(q, k, v, True)[0], cpu_forward(q, k, v, True)[0])

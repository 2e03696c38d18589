"""Attention in matrix products against the definition, also where the scores come in blocks."""

import pytest
import torch

from model.attention.dense import Case, dense, relative
from penstock.model.attention import plain

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("scores", [plain.SCORES, 300, 1])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_a_triangle_is_exact(scores: int, kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "SCORES", scores)
    case = Case((21,), ((0,), (0,)), heads=4, kv_heads=kv_heads)
    q, k, v, g = case.inputs()
    out, lse = plain.plain_forward(q, k, v, True)
    expected, gradients = dense(case)
    assert relative(out, expected) <= 1e-14
    for ours, exact in zip(plain.plain_backward(g, q, k, v, (out, lse), True), gradients):
        assert relative(ours, exact) <= 1e-14


def test_a_rectangle_is_that_of_a_softmax() -> None:
    q, k, v, g = Case((8,)).inputs()
    q = q[:, :, :5].detach().requires_grad_()
    out, lse = plain.plain_forward(q.detach(), k, v, False)
    scores = q @ k.mT / 2
    expected = scores.softmax(-1) @ v
    assert relative(out, expected.detach()) <= 1e-14
    assert relative(lse, scores.logsumexp(-1).detach()) <= 1e-14
    (exact,) = torch.autograd.grad(expected, q, g[:, :, :5])
    dq, _, _ = plain.plain_backward(g[:, :, :5], q.detach(), k, v, (out, lse), False)
    assert relative(dq, exact) <= 1e-14


def test_in_low_precision_the_log_sum_exp_stays_accurate() -> None:
    case = Case((40,), dtype=torch.bfloat16)
    q, k, v, _ = case.inputs()
    _, lse = plain.plain_forward(q, k, v, True)
    assert lse.dtype is torch.float32

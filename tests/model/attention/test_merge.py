"""Two softmaxes over parts of the keys make the one over all."""

import pytest
import torch
from torch import Tensor

from penstock.model.attention.merge import merge

pytestmark = pytest.mark.torch


def softmax(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    return scores.softmax(-1) @ values, scores.logsumexp(-1)


def halves(spread: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    scores = torch.randn(2, 3, 4, 10, generator=generator, dtype=torch.float64) * spread
    return scores, torch.randn(2, 3, 10, 6, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("spread", [1.0, 30.0, 1000.0])
def test_the_merged_softmax_is_that_of_all_keys(spread: float) -> None:
    scores, values = halves(spread)
    out, lse = softmax(scores[..., :3], values[:, :, :3])
    merge(out, lse, *softmax(scores[..., 3:], values[:, :, 3:]))
    expected, expected_lse = softmax(scores, values)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-14)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-15, atol=1e-14)


def test_a_log_sum_exp_may_be_a_column() -> None:
    scores, values = halves(1.0)
    flat, flat_lse = softmax(scores[..., :3], values[:, :, :3])
    out, lse = flat.clone(), flat_lse.unsqueeze(-1).clone()
    other, other_lse = softmax(scores[..., 3:], values[:, :, 3:])
    merge(out, lse, other, other_lse.unsqueeze(-1))
    merge(flat, flat_lse, other, other_lse)
    assert torch.equal(out, flat)
    assert torch.equal(lse.squeeze(-1), flat_lse)


def test_in_low_precision_a_merge_costs_some_roundings() -> None:
    """Three of 2^-9: of the inputs, of the weight, of the output."""
    scores, values = halves(1.0)
    out, lse = softmax(scores[..., :3], values[:, :, :3])
    other, other_lse = softmax(scores[..., 3:], values[:, :, 3:])
    low = out.bfloat16()
    merge(low, lse.float(), other.bfloat16(), other_lse.float())
    expected = softmax(scores, values)[0]
    assert float((low - expected).abs().max()) <= 3 * 2**-9 * float(values.abs().max())

"""The gate and its backward against autograd."""

import pytest
import torch
from torch.nn import functional

from model.samples import EXACT, relative
from penstock.model.layers.swiglu import swiglu, swiglu_backward

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float64, EXACT), (torch.float32, 1e-6), (torch.bfloat16, 2e-2)]
)
def test_output_and_gradient_are_those_of_autograd(dtype: torch.dtype, bound: float) -> None:
    torch.manual_seed(1)
    both, d = torch.randn(5, 14, dtype=dtype), torch.randn(5, 7, dtype=dtype)
    leaf = both.double().clone().requires_grad_()
    expected = functional.silu(leaf[:, :7]) * leaf[:, 7:]
    (gradient,) = torch.autograd.grad(expected, leaf, d.double())
    assert relative(swiglu(both), expected.detach()) <= bound
    assert relative(swiglu_backward(both, d), gradient) <= bound


def test_neither_the_input_nor_the_gradient_is_written_to() -> None:
    both, d = torch.randn(5, 14), torch.randn(5, 7)
    before = both.clone(), d.clone()
    swiglu(both)
    swiglu_backward(both, d)
    assert torch.equal(both, before[0])
    assert torch.equal(d, before[1])

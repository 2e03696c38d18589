"""RMSNorm and its backward against autograd."""

import pytest
import torch
from torch import Tensor

from model.samples import EXACT, random_weights, relative
from penstock.model.layers.norm import norm, norm_backward

pytestmark = [
    pytest.mark.torch,
    # some processors have no products of narrow types: torch says so and takes the long way
    pytest.mark.filterwarnings("ignore:mkldnn_matmul failed"),
]

SHAPES = [(5, 8), (2, 5, 3, 8), (1, 8)]


def _plain(x: Tensor, weight: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Output, and the gradients of input and weight."""
    x, weight = x.double().clone().requires_grad_(), weight.double().clone().requires_grad_()
    y = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    dx, dw = torch.autograd.grad(y, (x, weight), dy.double())
    return y.detach(), dx, dw


def _weight(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A norm's weight and its gradient."""
    weights = random_weights({"w": (8,)}, dtype)
    return weights.value, weights.grad


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float64, EXACT), (torch.float32, 1e-6), (torch.bfloat16, 2e-2)]
)
def test_output_and_gradients_are_those_of_autograd(
    shape: tuple[int, ...], dtype: torch.dtype, bound: float
) -> None:
    torch.manual_seed(1)
    weight, gradient = _weight(dtype)
    x, dy = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    y, r = norm(weight, x, 1e-5)
    dx = norm_backward(weight, gradient, x, r, dy)
    expected = _plain(x, weight, dy)
    assert y.dtype == dx.dtype == dtype
    for found, right in zip((y, dx, gradient), expected, strict=True):
        assert relative(found, right) <= bound


def test_the_weight_adds_up_over_calls() -> None:
    weight, gradient = _weight(torch.float64)
    x, dy = torch.randn(2, 3, 8, dtype=torch.float64)
    r = norm(weight, x, 1e-5)[1]
    norm_backward(weight, gradient, x, r, dy)
    once = gradient.clone()
    norm_backward(weight, gradient, x, r, dy)
    assert torch.equal(gradient, 2 * once)


def test_neither_the_input_nor_the_gradient_is_written_to() -> None:
    """Both are needed again: by the residual, and by the weight gradient that waits."""
    weight, gradient = _weight(torch.float64)
    x, dy = torch.randn(2, 3, 8, dtype=torch.float64)
    before = x.clone(), dy.clone()
    norm_backward(weight, gradient, x, norm(weight, x, 1e-5)[1], dy)
    assert torch.equal(x, before[0])
    assert torch.equal(dy, before[1])


def test_statistics_of_narrow_inputs_are_wide() -> None:
    weight, _ = _weight(torch.bfloat16)
    y, r = norm(weight, torch.full((1, 8), 300.0, dtype=torch.bfloat16), 1e-5)
    assert r.dtype == torch.float32
    assert float(r) == pytest.approx(1 / 300, rel=1e-6)
    assert torch.isfinite(y).all()

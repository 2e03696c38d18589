"""Parameters are views of flat buffers: by name, or neighbours as one matrix."""

import pytest
import torch

from model.samples import CPU, random_weights
from penstock.model.stages.weights import Weights

pytestmark = pytest.mark.torch

SIZES = {
    "norm.weight": (4,),
    "q.weight": (6, 4),
    "k.weight": (2, 4),
    "q.bias": (6,),
    "k.bias": (2,),
    "out.weight": (4, 6),
}


def test_every_element_of_the_buffers_belongs_to_one_parameter() -> None:
    weights = random_weights(SIZES)
    for number, tensor in enumerate(weights.named(weights.main).values()):
        tensor.fill_(number)
    expected = [float(n) for n, count in enumerate((4, 24, 8, 6, 2, 24)) for _ in range(count)]
    assert weights.main.tolist() == expected
    assert {name: tuple(t.shape) for name, t in weights.named(weights.grad).items()} == SIZES


def test_neighbours_are_one_matrix_with_one_bias() -> None:
    weights = random_weights(SIZES)
    named, gradients = weights.named(weights.main), weights.named(weights.grad)
    both = weights.matrix("q", "k")
    assert both.bias is not None
    assert both.bias_grad is not None
    torch.testing.assert_close(both.value, torch.cat((named["q.weight"], named["k.weight"])))
    torch.testing.assert_close(both.bias, torch.cat((named["q.bias"], named["k.bias"])))
    both.grad.fill_(1.0)
    both.bias_grad.fill_(2.0)
    filled = {name: set(gradient.flatten().tolist()) for name, gradient in gradients.items()}
    assert filled == {
        "norm.weight": {0.0},
        "q.weight": {1.0},
        "k.weight": {1.0},
        "q.bias": {2.0},
        "k.bias": {2.0},
        "out.weight": {0.0},
    }


def test_a_matrix_without_a_bias_has_none() -> None:
    out = random_weights(SIZES).matrix("out")
    assert out.value.shape == (4, 6)
    assert (out.bias, out.bias_grad) == (None, None)


def test_what_is_computed_with_is_what_is_updated_where_both_have_one_type() -> None:
    weights = Weights.empty(SIZES, dtype=torch.float32, main=torch.float32, device=CPU)
    assert weights.value is weights.main


def test_narrow_values_follow_the_main_weights_when_they_are_published() -> None:
    weights = Weights.empty(SIZES, dtype=torch.bfloat16, main=torch.float32, device=CPU)
    norm = weights.vector("norm.weight")
    weights.main.fill_(1 + 2**-12)
    assert norm.value.tolist() == [0.0] * 4
    weights.publish()
    assert norm.value.tolist() == [1.0] * 4
    assert (norm.value.dtype, norm.grad.dtype) == (torch.bfloat16, torch.float32)

"""A flat buffer as layers take it: neighbours as one matrix, gradients in the same structure."""

import pytest
import torch

from model.samples import random_weights
from penstock.arch.layers.parameter import INPUTS, OUTPUTS, Parameter
from penstock.arch.parameter_layout import lay_out
from penstock.model.layers.views import Views

pytestmark = pytest.mark.torch

SHAPES = {
    "norm.weight": (4,),
    "q.weight": (6, 4),
    "k.weight": (2, 4),
    "q.bias": (6,),
    "k.bias": (2,),
    "out.weight": (4, 6),
}


def test_neighbours_are_one_matrix_with_one_bias() -> None:
    weights = random_weights(SHAPES)
    named, gradients = weights.named(weights.main), weights.named(weights.grad)
    both = Views(weights.layout, weights.value).matrix("q", "k")
    assert both.bias is not None
    torch.testing.assert_close(both.weight, torch.cat((named["q.weight"], named["k.weight"])))
    torch.testing.assert_close(both.bias, torch.cat((named["q.bias"], named["k.bias"])))
    d_both = Views(weights.layout, weights.grad).matrix("q", "k")
    assert d_both.bias is not None
    d_both.weight.fill_(1.0)
    d_both.bias.fill_(2.0)
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
    weights = random_weights(SHAPES)
    out = Views(weights.layout, weights.value).matrix("out")
    assert out.weight.shape == (4, 6)
    assert out.bias is None


def test_a_matrix_is_found_by_its_number_in_every_buffer() -> None:
    weights = random_weights(SHAPES)
    values, gradients = (Views(weights.layout, flat) for flat in (weights.value, weights.grad))
    for views in (values, gradients):
        views.matrix("q", "k")
    out, d_out = values.matrix("out"), gradients.matrix("out")
    assert out.number == d_out.number == 1
    assert gradients.matrices[out.number] is d_out.weight


def test_parts_of_matrices_are_neighbours_too() -> None:
    """Two ranks share the outputs of q and k, and the inputs of what leads back."""
    axes = {"q.weight": OUTPUTS, "k.weight": OUTPUTS, "out.weight": INPUTS}
    parameters = {name: Parameter(name, SHAPES[name], axis=axis) for name, axis in axes.items()}
    layout = lay_out(parameters, index=1, of=2)
    views = Views(layout, torch.arange(layout.elements))
    assert views.matrix("q", "k").weight.shape == (3 + 1, 4)
    assert views.matrix("out").weight.shape == (4, 3)

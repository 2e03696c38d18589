"""Products of adapters, and both parts of their backward, are those of autograd on W + s B A."""

import pytest
import torch
from torch import Tensor

from model.samples import CPU, EXACT, relative
from penstock.arch.layers.parameter import Parameter
from penstock.arch.parameter_layout import lay_out
from penstock.model.layers.linear import Queue, add_products, linear, linear_add, linear_backward
from penstock.model.layers.views import Matrix, Views
from penstock.model.parallel.cell import result_of
from penstock.model.stages.weights import Weights

pytestmark = pytest.mark.torch

SCALE = 0.75
OUTPUTS = {"q": 5, "k": 2, "v": 3}
INPUTS, RANK, TOKENS = 4, 3, 7


def _weights(targets: str) -> tuple[Weights, dict[str, Tensor]]:
    """Frozen matrices with biases, some with adapters, and all of it by name."""
    frozen = {f"{name}.weight": (rows, INPUTS) for name, rows in OUTPUTS.items()}
    frozen |= {f"{name}.bias": (rows,) for name, rows in OUTPUTS.items()}
    downs = {f"{name}.lora_A.weight": (RANK, INPUTS) for name in targets}
    ups = {f"{name}.lora_B.weight": (OUTPUTS[name], RANK) for name in targets}
    parameters = {name: Parameter(name, shape, trained=False) for name, shape in frozen.items()}
    parameters |= {name: Parameter(name, shape) for name, shape in (downs | ups).items()}
    layout = lay_out(parameters)
    dtype = torch.float64
    weights = Weights.empty(layout, dtype=dtype, main=dtype, device=CPU)
    weights.main.normal_()
    weights.frozen.normal_()
    assert layout.frozen is not None
    named = weights.named(weights.value)
    for name, part in layout.frozen.parts.items():
        named[name] = weights.frozen[part.offset : part.stop].view(part.local_shape)
    return weights, named


def _both(weights: Weights) -> tuple[Matrix, Views]:
    """The three matrices as one, and the views of its gradients."""
    value = Views(weights.layout, weights.value, weights.frozen, SCALE)
    return value.matrix(*OUTPUTS), Views(weights.layout, weights.grad, None, SCALE)


def _expected(named: dict[str, Tensor], x: Tensor) -> Tensor:
    rows = [
        torch.nn.functional.linear(x, _merged(named, name), named[f"{name}.bias"])
        for name in OUTPUTS
    ]
    return torch.cat(rows, dim=1)


def _merged(named: dict[str, Tensor], name: str) -> Tensor:
    whole = named[f"{name}.weight"]
    if f"{name}.lora_A.weight" not in named:
        return whole
    return whole + SCALE * named[f"{name}.lora_B.weight"] @ named[f"{name}.lora_A.weight"]


@pytest.mark.parametrize("targets", ["q", "kv", "qkv"])
def test_forward_and_both_gradients_are_those_of_autograd(targets: str) -> None:
    weights, named = _weights(targets)
    matrix, views = _both(weights)
    gradient = views.matrix(*OUTPUTS)
    leaves = {name: each.clone().requires_grad_("lora" in name) for name, each in named.items()}
    x = torch.randn(TOKENS, INPUTS, dtype=torch.float64)
    dy = torch.randn(TOKENS, sum(OUTPUTS.values()), dtype=torch.float64)
    x_leaf = x.clone().requires_grad_()
    y = _expected(leaves, x_leaf)
    y.backward(dy)  # type: ignore[no-untyped-call]
    assert relative(linear(matrix, x), y.detach()) <= EXACT
    queue = Queue()
    dx = linear_backward(matrix, gradient, x, dy, queue)
    assert len(queue) == 1 + len(targets)
    add_products(views.matrices, queue)
    assert x_leaf.grad is not None
    assert relative(dx, x_leaf.grad) <= EXACT
    for name, found in weights.named(weights.grad).items():
        expected = leaves[name].grad
        assert expected is not None
        assert relative(found, expected) <= EXACT


def test_what_is_frozen_has_no_gradient_and_nothing_of_it_waits() -> None:
    weights, _ = _weights("q")
    matrix, views = _both(weights)
    assert len(weights.grad) == RANK * (INPUTS + OUTPUTS["q"])
    gradient = views.matrix(*OUTPUTS)
    assert gradient.weight.numel() == 0
    assert gradient.bias is not None
    assert gradient.bias.numel() == 0
    queue = Queue()
    x, dy = torch.randn(TOKENS, INPUTS).double(), torch.randn(TOKENS, 10).double()
    linear_backward(matrix, gradient, x, dy, queue)
    assert matrix.number not in [pending.number for pending in queue]


def test_a_residual_is_added_once() -> None:
    weights, named = _weights("qkv")
    value = Views(weights.layout, weights.value, weights.frozen, SCALE)
    matrix = value.matrix("q")._replace(bias=None)
    x = torch.randn(TOKENS, INPUTS, dtype=torch.float64)
    residual = torch.randn(TOKENS, OUTPUTS["q"], dtype=torch.float64)
    found = result_of(linear_add(matrix, x, residual))
    assert relative(found, residual + x @ _merged(named, "q").t()) <= EXACT

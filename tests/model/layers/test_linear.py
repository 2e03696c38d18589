"""The two parts of a linear backward are those of autograd; nothing is kept after the second."""

import weakref

import pytest
import torch
from torch.nn import functional

from model.samples import EXACT, random_weights, relative
from penstock.model.layers.linear import (
    Queue,
    add_product,
    add_products,
    linear,
    linear_add,
    linear_backward,
)
from penstock.model.layers.views import Matrix, Views
from penstock.model.parallel.cell import result_of
from penstock.model.stages.weights import Weights

pytestmark = [
    pytest.mark.torch,
    # some processors have no products of narrow types: torch says so and takes the long way
    pytest.mark.filterwarnings("ignore:mkldnn_matmul failed"),
]

PLAIN = {"m.weight": (5, 3)}
BIASED = {"m.weight": (5, 3), "m.bias": (5,)}


def _weights(
    shapes: dict[str, tuple[int, ...]], dtype: torch.dtype
) -> tuple[Weights, Matrix, Matrix]:
    """A matrix, and its gradient."""
    weights = random_weights(shapes, dtype)
    value, grad = (Views(weights.layout, flat) for flat in (weights.value, weights.grad))
    return weights, value.matrix("m"), grad.matrix("m")


@pytest.mark.parametrize("sizes", [PLAIN, BIASED], ids=["plain", "biased"])
def test_both_gradients_are_those_of_autograd(sizes: dict[str, tuple[int, ...]]) -> None:
    weights, matrix, gradient = _weights(sizes, torch.float64)
    leaves = {n: t.clone().requires_grad_() for n, t in weights.named(weights.main).items()}
    x, dy = torch.randn(7, 3, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    x_leaf = x.clone().requires_grad_()
    y = functional.linear(x_leaf, leaves["m.weight"], leaves.get("m.bias"))
    y.backward(dy)  # type: ignore[no-untyped-call]
    assert relative(linear(matrix, x), y.detach()) <= EXACT
    queue = Queue()
    dx = linear_backward(matrix, gradient, x, dy, queue)
    add_products([gradient.weight], queue)
    assert x_leaf.grad is not None
    assert relative(dx, x_leaf.grad) <= EXACT
    for name, found in weights.named(weights.grad).items():
        expected = leaves[name].grad
        assert expected is not None
        assert relative(found, expected) <= EXACT


def test_a_product_onto_a_residual_is_their_sum() -> None:
    _, matrix, _ = _weights(PLAIN, torch.float64)
    x, residual = torch.randn(7, 3, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    found = result_of(linear_add(matrix, x, residual))
    assert relative(found, linear(matrix, x) + residual) <= EXACT


def test_the_matrix_gets_no_gradient_before_the_queue_is_worked_off() -> None:
    weights, matrix, gradient = _weights(BIASED, torch.float64)
    queue = Queue()
    linear_backward(matrix, gradient, torch.ones(2, 3).double(), torch.ones(2, 5).double(), queue)
    found = weights.named(weights.grad)
    assert found["m.weight"].abs().max() == 0
    assert found["m.bias"].tolist() == [2.0] * 5


def test_what_is_due_is_added_first_in_first_out() -> None:
    """Adding a large number and its opposite around small ones tells one order from another."""
    weights, matrix, gradient = _weights(PLAIN, torch.float32)
    one = torch.ones(1, 3)
    dues = [torch.full((1, 5), value) for value in (1e8, 1.0, -1e8, 1.0)]
    queue = Queue()
    for dy in dues:
        linear_backward(matrix, gradient, one, dy, queue)
    add_products([gradient.weight], queue)
    assert weights.grad.tolist() == [1.0] * 15
    assert queue == []


def test_each_due_lets_go_of_its_tensors_before_the_next_is_worked_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, matrix, gradient = _weights(PLAIN, torch.float32)
    queue = Queue()
    kept = []
    for _ in range(3):
        x = torch.randn(2, 3)
        kept.append(weakref.ref(x))
        linear_backward(matrix, gradient, x, torch.randn(2, 5), queue)
        del x
    alive: list[int] = []

    def spy(gradient: torch.Tensor, x: torch.Tensor, dy: torch.Tensor) -> None:
        alive.append(sum(ref() is not None for ref in kept))

    monkeypatch.setattr("penstock.model.layers.linear.add_product", spy)
    add_products([gradient.weight], queue)
    assert alive == [3, 2, 1]


def test_gradients_of_narrow_products_are_added_up_in_32_bits() -> None:
    """512 + 1 is 512 in bfloat16."""
    weights, _, gradient = _weights(PLAIN, torch.bfloat16)
    for value in (512.0, 1.0):
        dy = torch.full((1, 5), value, dtype=torch.bfloat16)
        add_product(gradient.weight, torch.ones(1, 3, dtype=torch.bfloat16), dy)
    assert weights.grad.dtype == torch.float32
    assert weights.grad.tolist() == [513.0] * 15

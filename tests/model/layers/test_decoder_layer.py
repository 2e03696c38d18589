"""A layer against plain arithmetic under autograd."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from model.samples import EXACT, cut, microbatch_of, random_weights, relative, tiny
from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layer_parameters, shapes_of
from penstock.model.attention.slice_attention import SliceOfLayer
from penstock.model.layers.attend import SliceContext
from penstock.model.layers.decoder_layer import DecoderLayer
from penstock.model.layers.linear import Queue, add_products
from penstock.model.layers.rope import rope_tables
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import result_of
from penstock.model.stages.weights import Weights
from penstock.verify.plain_decoder import PlainLayer, rotary_tables, square_attention

pytestmark = [
    pytest.mark.torch,
    # some processors have no products of narrow types: torch says so and takes the long way
    pytest.mark.filterwarnings("ignore:mkldnn_matmul failed"),
]

LENGTH = 7
VARIANTS = {"plain": tiny(1), "biased and normed": tiny(1, qkv_bias=True, qk_norm=True)}


def _context(model: ModelConfig, dtype: torch.dtype) -> SliceContext:
    cos, sin = rope_tables(model, range(LENGTH), dtype, torch.device("cpu"))
    (piece,) = cut(microbatch_of([[0]], LENGTH), (LENGTH,))
    at = SliceOfLayer(piece, None, 0)
    return SliceContext(at, cos.unsqueeze(1), sin.unsqueeze(1), written=False)


def _ours(weights: Weights, model: ModelConfig, x: Tensor, dz: Tensor) -> tuple[Tensor, Tensor]:
    layer, context = DecoderLayer(model, 0), _context(model, x.dtype)
    values, gradients = (Views(weights.layout, flat) for flat in (weights.value, weights.grad))
    own, d_own = layer.views(values), layer.views(gradients)
    z, saved = result_of(layer.forward(own, x, context))
    queue = Queue()
    dx = result_of(layer.backward(own, d_own, saved, dz, context, queue))
    add_products(gradients.matrices, queue)
    return z, dx


def _plain(
    weights: Weights, model: ModelConfig, x: Tensor, dz: Tensor
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    prefix = "model.layers.0."
    leaves = {
        name.removeprefix(prefix): value.double().clone().requires_grad_()
        for name, value in weights.named(weights.value).items()
    }
    x = x.double().clone().requires_grad_()
    plain = PlainLayer(model, square_attention)
    z = functional_call(plain, leaves, (x[None], *rotary_tables(model, len(x))))[0]
    (z * dz).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    found = {prefix + name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    return z.detach(), x.grad, found


@pytest.mark.parametrize("model", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, EXACT), (torch.bfloat16, 0.06)])
def test_output_and_every_gradient_are_those_of_autograd(
    model: ModelConfig, dtype: torch.dtype, bound: float
) -> None:
    torch.manual_seed(2)
    weights = random_weights(shapes_of(layer_parameters(model, 0)), dtype)
    weights.main.mul_(0.5)
    weights.publish()
    x, dz = torch.randn(2, LENGTH, model.hidden, dtype=dtype)
    z, dx = _ours(weights, model, x, dz)
    right, right_dx, expected = _plain(weights, model, x, dz)
    assert relative(z, right) <= bound
    assert relative(dx, right_dx) <= bound
    found = weights.named(weights.grad)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert relative(found[name], gradient) <= bound, name


def test_what_is_kept_is_not_written_to_by_the_backward() -> None:
    """The weight gradient reads it later."""
    model = tiny(1)
    weights = random_weights(shapes_of(layer_parameters(model, 0)))
    layer, context = DecoderLayer(model, 0), _context(model, torch.float64)
    own, d_own = (
        layer.views(Views(weights.layout, flat)) for flat in (weights.value, weights.grad)
    )
    x, dz = torch.randn(2, LENGTH, model.hidden, dtype=torch.float64)
    _, saved = result_of(layer.forward(own, x, context))
    inputs = (saved.a, saved.post.mlp.b, saved.post.mlp.gated, saved.attention.out, dz)
    copies = [tensor.clone() for tensor in inputs]
    result_of(layer.backward(own, d_own, saved, dz, context, Queue()))
    for before, after in zip(copies, inputs):
        assert torch.equal(before, after)

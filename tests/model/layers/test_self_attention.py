"""Attention of a layer against the plain one under autograd, whole and in slices."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from loops import each
from model.samples import EXACT, cut, microbatch_of, random_weights, relative, tiny
from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layer_parameters, shapes_of
from penstock.model.attention.memory import KeyValues
from penstock.model.attention.piece import Piece
from penstock.model.attention.slice_attention import SliceOfLayer
from penstock.model.layers import attend
from penstock.model.layers.attend import SliceContext
from penstock.model.layers.linear import Queue, add_products
from penstock.model.layers.qkv_projection import QkvWeights, qkv_width
from penstock.model.layers.rope import rope_tables
from penstock.model.layers.self_attention import SelfAttention
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import result_of
from penstock.model.stages.weights import Weights
from penstock.run.observe.memory_meter import LiveBytes
from penstock.verify.plain_decoder import PlainAttention, rotary_tables, square_attention

pytestmark = pytest.mark.torch

LENGTH = 9
PREFIX = "model.layers.0."
VARIANTS = {
    "plain": tiny(1),
    "biased": tiny(1, qkv_bias=True),
    "normed": tiny(1, qk_norm=True),
    "biased and normed": tiny(1, qkv_bias=True, qk_norm=True),
}
CUTS = {"whole": (9,), "two": (4, 5), "ragged": (1, 6, 2)}


def _weights(model: ModelConfig) -> Weights:
    return random_weights(shapes_of(layer_parameters(model, 0)))


def _views(attention: SelfAttention, weights: Weights, flat: Tensor) -> QkvWeights:
    return attention.projection.views(Views(weights.layout, flat), f"{PREFIX}self_attn.")


def _context(model: ModelConfig, piece: Piece, memory: KeyValues | None) -> SliceContext:
    cos, sin = rope_tables(model, range(piece.start, piece.end), torch.float64, torch.device("cpu"))
    at = SliceOfLayer(piece, memory, 0)
    return SliceContext(at, cos.unsqueeze(1), sin.unsqueeze(1), written=False)


def _ours(
    model: ModelConfig, weights: Weights, x: Tensor, d: Tensor, lengths: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Output and input gradient of both rows, slice by slice."""
    attention = SelfAttention(model)
    own, d_own = (_views(attention, weights, flat) for flat in (weights.value, weights.grad))
    pieces = cut(microbatch_of([[0], [0]], LENGTH), lengths)
    memory = None
    if len(pieces) > 1:
        memory = KeyValues(1, 2, model.kv_heads, LENGTH, model.head_size, dtype=torch.float64)
    contexts = [_context(model, piece, memory) for piece in pieces]
    inputs = [x[:, piece.start : piece.end].reshape(-1, model.hidden) for piece in pieces]
    done = [result_of(attention.forward(own, a, context)) for a, context in zip(inputs, contexts)]
    if memory is not None:
        memory.open_gradients()
    dx = torch.empty_like(x)
    for piece in reversed(pieces):
        queue = Queue()
        saved, context = done[piece.slice], contexts[piece.slice]
        g = d[:, piece.start : piece.end].reshape(saved.out.shape)
        found = result_of(
            attention.backward(own, d_own, inputs[piece.slice], saved, g, context, queue)
        )
        dx[:, piece.start : piece.end] = found.view(2, -1, model.hidden)
        add_products([d_own.qkv.weight], queue)
    return torch.cat([each.out.view(2, -1, d.shape[-1]) for each in done], 1), dx


def _plain(
    model: ModelConfig, weights: Weights, x: Tensor, d: Tensor
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The same with autograd; the way back to the residual is left out by a matrix of ones."""
    leaves = {
        name.removeprefix(f"{PREFIX}self_attn."): value.clone().requires_grad_()
        for name, value in weights.named(weights.main).items()
        if "self_attn" in name
    }
    x = x.clone().requires_grad_()
    back = {"o_proj.weight": torch.eye(d.shape[-1], dtype=torch.float64)}
    plain = PlainAttention(model, square_attention)
    out = functional_call(plain, leaves | back, (x, *rotary_tables(model, x.shape[1])))
    (out * d).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    return out.detach(), x.grad, {n: t.grad for n, t in leaves.items() if t.grad is not None}


@each("model", VARIANTS.values(), ids=VARIANTS.keys())
@each("lengths", CUTS.values(), ids=CUTS.keys())
def test_output_and_gradients_are_those_of_autograd(
    model: ModelConfig, lengths: tuple[int, ...]
) -> None:
    torch.manual_seed(2)
    weights = _weights(model)
    x = torch.randn(2, LENGTH, model.hidden, dtype=torch.float64)
    d = torch.randn(2, LENGTH, model.heads * model.head_size, dtype=torch.float64)
    out, dx = _ours(model, weights, x, d, lengths)
    right, right_dx, expected = _plain(model, weights, x, d)
    assert relative(out, right) <= EXACT
    assert relative(dx, right_dx) <= EXACT
    assert len(expected) == 3 + 3 * model.qkv_bias + 2 * model.qk_norm
    for name, gradient in expected.items():
        assert (
            relative(weights.named(weights.grad)[f"{PREFIX}self_attn.{name}"], gradient) <= EXACT
        ), name


def test_keys_and_values_of_a_slice_are_kept_in_the_memory_alone() -> None:
    model = tiny(1)
    attention, weights = SelfAttention(model), _weights(model)
    own = _views(attention, weights, weights.value)
    piece = cut(microbatch_of([[0]], LENGTH), (4, 5))[0]
    memory = KeyValues(1, 1, model.kv_heads, LENGTH, model.head_size, dtype=torch.float64)
    a = torch.randn(4, model.hidden, dtype=torch.float64)
    saved = result_of(attention.forward(own, a, _context(model, piece, memory))).attention
    storages = {t.untyped_storage().data_ptr() for t in (*memory.keys, *memory.values)}
    assert {t.untyped_storage().data_ptr() for t in (saved.k, saved.v)} <= storages


def test_a_whole_sequence_keeps_no_view_of_the_projection() -> None:
    """Values that were a view would keep the queries' and keys' memory alive too."""
    model = tiny(1)
    attention, weights = SelfAttention(model), _weights(model)
    own = _views(attention, weights, weights.value)
    (piece,) = cut(microbatch_of([[0]], LENGTH), (LENGTH,))
    a = torch.randn(LENGTH, model.hidden, dtype=torch.float64)
    v = result_of(attention.forward(own, a, _context(model, piece, None))).attention.v
    assert v.untyped_storage().nbytes() == v.nbytes


def test_while_attention_works_nothing_is_alive_that_it_does_not_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The product that heads are cut from ends before, the one for their gradients begins after."""
    model, rows = tiny(1), 2
    weights = _weights(model)
    attention = SelfAttention(model)
    own, d_own = (_views(attention, weights, flat) for flat in (weights.value, weights.grad))
    (piece,) = cut(microbatch_of([[0]] * rows, LENGTH), (LENGTH,))
    context = _context(model, piece, None)
    a = torch.randn(rows * LENGTH, model.hidden, dtype=torch.float64)
    d = torch.randn(rows * LENGTH, model.heads * model.head_size, dtype=torch.float64)
    alive = []
    for name in ("attention_forward", "attention_backward"):

        def noting(*given: object, work: object = getattr(attend, name)) -> object:
            alive.append(meter.level)
            return work(*given)  # type: ignore[operator]

        monkeypatch.setattr(attend, name, noting)
    with LiveBytes() as meter:
        meter.ignore(a, weights.value, context.cos, context.sin)
        saved = result_of(attention.forward(own, a, context))
    heads = a.element_size() * len(a) * qkv_width(model)
    with LiveBytes() as meter:
        meter.ignore(d)
        result_of(attention.backward(own, d_own, a, saved, d, context, Queue()))
    assert alive == [heads, 0]

"""A model cut at its attention computes what whole layers compute."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from loops import each
from model.samples import (
    CPU,
    EXACT,
    Held,
    again_backward,
    cut,
    fill,
    microbatch_of,
    random_weights,
    relative,
    stages_of,
    tiny,
    train,
)
from penstock.arch.attention_cut import HEADS, WEIGHTS
from penstock.arch.config import ModelConfig
from penstock.arch.parameter_layout import lay_out
from penstock.arch.parameters import between_parameters, expected_shapes
from penstock.arch.presets import model as published
from penstock.model.attention.piece import Piece
from penstock.model.stages.attention_stage import AttentionStage
from penstock.model.stages.between_attentions import BetweenAttentionsStage
from penstock.model.stages.projecting_attention import ProjectingAttentionStage
from penstock.model.stages.weights import Weights
from penstock.verify.members import small_member

pytestmark = pytest.mark.torch

LENGTH = 11
MODELS = {
    "plain": tiny(),
    "tied": tiny(tied=True),
    "biased and normed": tiny(qkv_bias=True, qk_norm=True),
    "gemma": small_member(published("gemma3-12b"), tiny()),
    "olmo": small_member(published("olmo2-7b"), tiny()),
}


Attending = AttentionStage | ProjectingAttentionStage


def attending(model: ModelConfig, to_attention: str, layer: int = 0) -> Attending:
    """The attention of a layer, with what it is given."""
    place = (layer, LENGTH, torch.empty((), dtype=torch.float64))
    if to_attention == HEADS:
        return AttentionStage(model, *place)
    return ProjectingAttentionStage(model, model, *place)


def cut_stages(model: ModelConfig, to_attention: str = HEADS) -> list[Held]:
    """Stages between attentions, with the attention of each layer between them."""
    found = [_between(model, 0, to_attention)]
    for number in range(1, model.layers + 1):
        attention = Held.of(attending(model, to_attention, number - 1), random_weights({}))
        found += [attention, _between(model, number, to_attention)]
    return found


def _between(model: ModelConfig, number: int, to_attention: str) -> Held:
    layout = lay_out(between_parameters(model, number))
    weights = Weights.empty(layout, dtype=torch.float64, main=torch.float64, device=CPU)
    fill(weights, model)
    stage = BetweenAttentionsStage(model, number, layout, to_attention=to_attention)
    return Held.of(stage, weights)


def at_once(stage: Held, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any) -> Any:
    return stage.backward(piece, act, g, kv, dkv)


def in_two(stage: Held, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any) -> Any:
    """The input gradient, then the weight gradient where there are weights."""
    found = stage.input_gradient(piece, act, g, kv, dkv)
    if isinstance(stage.stage, BetweenAttentionsStage):
        stage.weight_gradient(piece, found[2])
    return found


def _gradients(stages: Sequence[Held]) -> dict[str, Tensor]:
    held = [stage.weights for stage in stages]
    return {name: grad for w in held for name, grad in w.named(w.grad).items()}


@pytest.mark.long
@each("to_attention", (HEADS, WEIGHTS))
@each("backward", [at_once, in_two, again_backward])
@each("lengths", [(LENGTH,), (4, 7), (2, 1, 8)])
@each("model", MODELS.values(), ids=MODELS.keys())
def test_loss_and_gradients_are_those_of_whole_layers(
    model: ModelConfig, lengths: tuple[int, ...], backward: Any, to_attention: str
) -> None:
    torch.manual_seed(8)
    pieces = cut(microbatch_of(((0, 4), (0,)), LENGTH), lengths)
    whole, parts = stages_of(model, (1, 1), LENGTH), cut_stages(model, to_attention)
    assert train(parts, pieces, backward) == pytest.approx(train(whole, pieces), rel=EXACT)
    expected, found = _gradients(whole), _gradients(parts)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert relative(found[name], gradient) <= EXACT, name


def test_stages_between_attentions_hold_every_parameter_once() -> None:
    model = MODELS["biased and normed"]
    held = [
        name for number in range(model.layers + 1) for name in between_parameters(model, number)
    ]
    assert sorted(held) == sorted(expected_shapes(model))


def test_what_runs_again_is_the_same() -> None:
    """Attention keeps its input, and the memory of a cut sequence is not written twice."""
    model = MODELS["biased and normed"]
    pieces = cut(microbatch_of(((0,),), LENGTH), (4, 7))
    first, attention = cut_stages(model)[:2]
    kv = None
    for piece in pieces:
        x = first.forward(piece, None, None)[0]
        out, kept, kv = attention.forward_light(piece, x, kv)
        again = attention.recompute(piece, kept, kv)
        attended = again.out.transpose(1, 2).flatten()
        assert torch.equal(attended, out[: len(attended)])


@each("lengths", [(LENGTH,), (4, 7)])
@each("model", MODELS.values(), ids=MODELS.keys())
def test_attention_that_makes_its_heads_again_does_not_attend_again(
    model: ModelConfig, lengths: tuple[int, ...]
) -> None:
    """What comes back is what a forward keeps, bit for bit, with the very output that was kept."""
    pieces = cut(microbatch_of(((0,),), LENGTH), lengths)
    first, attention = cut_stages(model, WEIGHTS)[:2]
    kv = other = None
    for piece in pieces:
        x = first.forward(piece, None, None)[0]
        _, kept, kv = attention.forward_light(piece, x, kv)
        _, wanted, other = attention.forward(piece, x, other)
        again = attention.recompute(piece, kept, kv)
        assert again.attention.out is kept.out
        assert again.attention.lse is kept.lse
        for found, right in zip(again.attention, wanted.attention):
            assert torch.equal(found, right)


def test_section_3_weights_go_to_attention_and_their_gradient_comes_back() -> None:
    """arXiv:2507.00394: h and h values per token and 3 h^2 weights there, the same back."""
    model = replace(tiny(), heads=2, kv_heads=2)
    (piece,) = cut(microbatch_of(((0,),), LENGTH), (LENGTH,))
    first, attention = cut_stages(model, WEIGHTS)[:2]
    x = first.forward(piece, None, None)[0]
    out, act, kv = attention.forward(piece, x, None)
    g = attention.backward(piece, act, torch.ones_like(out), kv, None)[0]
    h = model.hidden
    assert (len(x), len(out)) == (3 * h * h + LENGTH * (h + h), LENGTH * (h + h))
    assert len(g) == len(x)
    assert torch.equal(x[: 3 * h * h], first.value.front.projection)


def test_section_3_qkv_goes_to_attention_its_output_comes_back_and_the_residual_passes() -> None:
    """arXiv:2507.00394: 3 h and h values per token there, h and h back."""
    model = replace(tiny(), heads=2, kv_heads=2)
    (piece,) = cut(microbatch_of(((0,),), LENGTH), (LENGTH,))
    first, attention = cut_stages(model)[:2]
    x = first.forward(piece, None, None)[0]
    out = attention.forward(piece, x, None)[0]
    h = model.hidden
    assert (len(x), len(out)) == (LENGTH * (3 * h + h), LENGTH * (h + h))
    assert torch.equal(out[LENGTH * h :], x[LENGTH * 3 * h :])


def test_attention_has_no_weight_gradient() -> None:
    for to_attention in (HEADS, WEIGHTS):
        attention = attending(tiny(), to_attention)
        with pytest.raises(AssertionError, match="weights"):
            attention.weight_gradient(None, cut(microbatch_of(((0,),), LENGTH), (LENGTH,))[0], None)

"""A model cut at its attention computes what whole layers compute."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from model.samples import CPU, EXACT, cut, microbatch_of, relative, stages_of, tiny, train
from penstock.arch.config import ModelConfig
from penstock.arch.parameters import EMBEDDING, HEAD, LAST_NORM, between_shapes, expected_shapes
from penstock.model.stages.attention_stage import AttentionStage
from penstock.model.stages.piece import Piece
from penstock.model.stages.segment import SegmentStage
from penstock.model.stages.weights import Weights
from penstock.verify.material import parameters_of

pytestmark = pytest.mark.torch

LENGTH = 11
MODELS = {
    "plain": tiny(),
    "tied": tiny(tied=True),
    "biased and normed": tiny(qkv_bias=True, qk_norm=True),
}


def parted_stages(model: ModelConfig) -> list[Any]:
    """Segments with the attention of each layer between them."""
    attention = AttentionStage(model, LENGTH, torch.empty((), dtype=torch.float64))
    found: list[Any] = [_segment(model, 0)]
    for segment in range(1, model.layers + 1):
        found += [attention, _segment(model, segment)]
    return found


def _segment(model: ModelConfig, segment: int) -> SegmentStage:
    vocabulary = (model.vocabulary, model.hidden)
    sizes = {EMBEDDING: vocabulary} if segment == 0 else {}
    sizes |= between_shapes(model, segment)
    if segment == model.layers:
        sizes |= {LAST_NORM: (model.hidden,), HEAD: vocabulary}
    weights = Weights.empty(sizes, dtype=torch.float64, main=torch.float64, device=CPU)
    values = parameters_of(model, torch.float64)
    for name, main in weights.named(weights.main).items():
        main.copy_(values[EMBEDDING if name == HEAD and model.tied else name])
    return SegmentStage(model, weights, segment)


def at_once(stage: Any, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any) -> Any:
    return stage.backward(piece, act, g, kv, dkv)


def in_two(stage: Any, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any) -> Any:
    """The input gradient, then the weight gradient where there are weights."""
    found = stage.input_gradient(piece, act, g, kv, dkv)
    if isinstance(stage, SegmentStage):
        stage.weight_gradient(piece, found[2])
    return found


def _gradients(stages: Sequence[Any]) -> dict[str, Tensor]:
    held = [stage.weights for stage in stages if not isinstance(stage, AttentionStage)]
    return {name: grad for w in held for name, grad in w.named(w.grad).items()}


@pytest.mark.parametrize("backward", [at_once, in_two])
@pytest.mark.parametrize("lengths", [(LENGTH,), (4, 7), (2, 1, 8)])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_loss_and_gradients_are_those_of_whole_layers(
    model: ModelConfig, lengths: tuple[int, ...], backward: Any
) -> None:
    torch.manual_seed(8)
    pieces = cut(microbatch_of(((0, 4), (0,)), LENGTH), lengths)
    whole, parts = stages_of(model, (1, 1), LENGTH), parted_stages(model)
    assert train(parts, pieces, backward) == pytest.approx(train(whole, pieces), rel=EXACT)
    expected, found = _gradients(whole), _gradients(parts)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert relative(found[name], gradient) <= EXACT, name


def test_segments_hold_every_parameter_once() -> None:
    model = MODELS["biased and normed"]
    held = [name for segment in range(model.layers + 1) for name in between_shapes(model, segment)]
    assert sorted([*held, EMBEDDING, LAST_NORM, HEAD]) == sorted(expected_shapes(model))


def test_what_runs_again_is_the_same() -> None:
    """Attention keeps its input, and the memory of a cut sequence is not written twice."""
    model = MODELS["biased and normed"]
    pieces = cut(microbatch_of(((0,),), LENGTH), (4, 7))
    first, attention = parted_stages(model)[:2]
    kv = None
    for piece in pieces:
        x = first.forward(piece, None, None)[0]
        out, kept, kv = attention.forward_light(piece, x, kv)
        again = attention.recompute(piece, kept, kv)
        assert torch.equal(again.out.transpose(1, 2).flatten(2), out[..., : again.out.shape[1] * 6])


def test_section_3_qkv_goes_to_attention_its_output_comes_back_and_the_residual_passes() -> None:
    """arXiv:2507.00394: 3 h and h values per token there, h and h back."""
    model = replace(tiny(), heads=2, kv_heads=2)
    (piece,) = cut(microbatch_of(((0,),), LENGTH), (LENGTH,))
    first, attention = parted_stages(model)[:2]
    x = first.forward(piece, None, None)[0]
    out = attention.forward(piece, x, None)[0]
    h = model.hidden
    assert (x.shape[-1], out.shape[-1]) == (3 * h + h, h + h)
    assert torch.equal(out[..., h:], x[..., 3 * h :])


def test_attention_has_no_weight_gradient() -> None:
    attention = AttentionStage(tiny(), LENGTH, torch.empty(()))
    with pytest.raises(AssertionError, match="no weights"):
        attention.weight_gradient(cut(microbatch_of(((0,),), LENGTH), (LENGTH,))[0], None)

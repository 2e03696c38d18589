"""The plain decoder: its two attentions agree, its stages are one model, its angles are right."""

from dataclasses import replace

import pytest
import torch

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import expected_shapes
from penstock.errors import ShapeError
from penstock.verify.plain_decoder import (
    PlainStage,
    fused_attention,
    rotary_tables,
    square_attention,
    stored_name,
    turn_by_tables,
)

pytestmark = pytest.mark.torch

MODEL = ModelConfig(3, 8, 12, 4, 2, 2, 11, qkv_bias=True, qk_norm=True)
LENGTH = 6


def whole(model: ModelConfig = MODEL) -> PlainStage:
    """With some weights: an embedding comes with what is in its memory, which may be no number."""
    torch.manual_seed(0)
    stage = PlainStage(model, range(model.layers), LENGTH, square_attention).double()
    for parameter in stage.parameters():
        torch.nn.init.normal_(parameter)
    return stage


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_the_square_of_scores_is_what_the_fused_attention_computes(kv_heads: int) -> None:
    torch.manual_seed(1)
    q = torch.randn(2, 4, 7, 3, dtype=torch.float64)
    k, v = torch.randn(2, 2, kv_heads, 7, 3, dtype=torch.float64)
    torch.testing.assert_close(square_attention(q, k, v), fused_attention(q, k, v))


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("plain", [False, True], ids=["biases and norms", "neither"])
def test_it_has_the_parameters_of_checkpoints(tied: bool, plain: bool) -> None:
    model = replace(MODEL, tied=tied, qkv_bias=not plain, qk_norm=not plain)
    found = {stored_name(n): tuple(p.shape) for n, p in whole(model).named_parameters()}
    assert found == expected_shapes(model)


def test_stages_one_after_the_other_are_the_whole() -> None:
    one = whole()
    parts = [
        PlainStage(MODEL, layers, LENGTH, square_attention) for layers in (range(1), range(1, 3))
    ]
    values = one.state_dict()
    for part in parts:
        part.double().load_state_dict({name: values[name] for name in part.state_dict()})
    tokens = torch.arange(LENGTH)[None]
    assert torch.equal(parts[1](parts[0](tokens)), one(tokens))


def test_a_tied_head_cannot_stand_apart_from_its_embedding() -> None:
    with pytest.raises(ShapeError, match="different stages"):
        PlainStage(replace(MODEL, tied=True), range(1), LENGTH, square_attention)


def test_the_first_position_is_not_turned_and_the_angle_grows_with_the_position() -> None:
    model = replace(MODEL, head_size=4, rope_theta=100.0)
    ones = torch.ones(1, 3, 4, dtype=torch.float64)
    turned = turn_by_tables(ones, *rotary_tables(model, 3))
    angles = torch.tensor([[0.0, 0.0], [1.0, 0.1], [2.0, 0.2]], dtype=torch.float64)
    expected = torch.cat((angles.cos() - angles.sin(), angles.cos() + angles.sin()), -1)
    torch.testing.assert_close(turned[0], expected, rtol=1e-14, atol=1e-14)

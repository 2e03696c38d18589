"""Initial weights depend on the seed and the parameter's name, and on nothing else."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.errors import ShapeError
from penstock.model.io.initial_weights import SPREAD, initialise

pytestmark = pytest.mark.torch

MODEL = ModelConfig(8, 12, 20, 4, 2, 6, 23)
MATRIX = "model.layers.0.self_attn.q_proj.weight"


def _filled(name: str, seed: int = 1, model: ModelConfig = MODEL) -> Tensor:
    out = torch.full((300, 40), -1.0)
    initialise(model, name, out, seed)
    return out


def test_the_same_name_and_seed_give_the_same_numbers() -> None:
    assert torch.equal(_filled(MATRIX), _filled(MATRIX))


def test_numbers_do_not_depend_on_what_was_drawn_before_nor_change_what_is_drawn_after() -> None:
    torch.manual_seed(4)
    first, drawn = _filled(MATRIX), torch.rand(3)
    torch.manual_seed(4)
    torch.rand(100)
    second = _filled(MATRIX)
    torch.manual_seed(4)
    assert torch.equal(first, second)
    assert torch.equal(drawn, torch.rand(3))


@pytest.mark.parametrize(
    ("name", "seed"), [("model.layers.1.self_attn.q_proj.weight", 1), (MATRIX, 2)]
)
def test_another_name_or_another_seed_gives_other_numbers(name: str, seed: int) -> None:
    correlation = (_filled(MATRIX) * _filled(name, seed)).mean() / SPREAD**2
    assert abs(float(correlation)) < 0.05


def test_matrices_are_normal_with_the_spread_of_their_kind() -> None:
    assert float(_filled(MATRIX).std()) == pytest.approx(SPREAD, rel=0.03)
    for name in ("model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.down_proj.weight"):
        assert float(_filled(name).std()) == pytest.approx(SPREAD / 4, rel=0.03)  # sqrt(2 x 8)
        deeper = _filled(name, model=replace(MODEL, layers=32))
        assert float(deeper.std()) == pytest.approx(SPREAD / 8, rel=0.03)


def test_norms_begin_at_one_and_biases_at_zero() -> None:
    model = replace(MODEL, qkv_bias=True, qk_norm=True)
    for name in ("model.norm.weight", "model.layers.2.self_attn.q_norm.weight"):
        assert set(_filled(name, model=model).flatten().tolist()) == {1.0}
    bias = "model.layers.2.self_attn.q_proj.bias"
    assert set(_filled(bias, model=model).flatten().tolist()) == {0.0}


def test_a_tied_head_that_is_held_apart_is_filled() -> None:
    tied = _filled("lm_head.weight", model=replace(MODEL, tied=True))
    assert torch.equal(tied, _filled("lm_head.weight"))


def test_a_parameter_that_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"the model has no model\.layers\.0\.mlp\.up\.") as error:
        _filled("model.layers.0.mlp.up.weight")
    assert "up_proj" in error.value.hint


def test_wider_types_hold_the_same_numbers() -> None:
    wide = torch.empty((300, 40), dtype=torch.float64)
    initialise(MODEL, MATRIX, wide, 1)
    assert torch.equal(wide, _filled(MATRIX).double())

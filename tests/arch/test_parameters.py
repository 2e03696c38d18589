from dataclasses import replace

import pytest

from loops import each
from penstock.arch.config import ModelConfig
from penstock.arch.parameters import (
    HEAD,
    elements,
    expected_shapes,
    layer_parameters,
    layer_prefix,
    refuse_running,
    shapes_of,
)
from penstock.arch.presets import MODELS, model
from penstock.errors import ShapeError


@each("name", MODELS)
def test_the_parameters_listed_are_the_parameters_counted(name: str) -> None:
    assert elements(expected_shapes(model(name))) == model(name).parameters


def test_every_layer_is_listed_once_in_order() -> None:
    config = model("tiny")
    names = list(expected_shapes(config))
    layers = [name.split(".")[2] for name in names if name.startswith("model.layers.")]
    assert list(dict.fromkeys(layers)) == [str(layer) for layer in range(config.layers)]
    assert layers == sorted(layers, key=int)
    assert set(layer_parameters(config, 3)) == {n for n in names if n.startswith(layer_prefix(3))}


def test_grouped_heads_biases_and_norms_have_their_sizes() -> None:
    config = ModelConfig(1, 24, 40, 4, 2, 10, 7, qkv_bias=True, qk_norm=True)
    attention = {
        name.removeprefix("model.layers.0.self_attn."): shape
        for name, shape in shapes_of(layer_parameters(config, 0)).items()
        if "self_attn" in name
    }
    assert attention == {
        "q_proj.weight": (40, 24),
        "k_proj.weight": (20, 24),
        "v_proj.weight": (20, 24),
        "q_proj.bias": (40,),
        "k_proj.bias": (20,),
        "v_proj.bias": (20,),
        "q_norm.weight": (10,),
        "k_norm.weight": (10,),
        "o_proj.weight": (24, 40),
    }


def test_a_tied_model_has_no_head_of_its_own() -> None:
    config = model("tiny")
    assert HEAD in expected_shapes(config)
    assert HEAD not in expected_shapes(replace(config, tied=True))


def test_a_plain_mlp_has_names_and_is_not_run() -> None:
    plain = replace(model("tiny"), gated=False)
    assert len(expected_shapes(model("tiny"))) - len(expected_shapes(plain)) == plain.layers
    with pytest.raises(ShapeError, match="plain MLP"):
        refuse_running(plain)
    refuse_running(model("tiny"))

from dataclasses import replace
from typing import Any

import pytest

from loops import each
from penstock.arch.config import ModelConfig
from penstock.arch.presets import MODELS, model
from penstock.arch.rope_scaling import RopeScaling
from penstock.errors import ShapeError


def gpt(layers: int, hidden: int, heads: int, vocabulary: int) -> ModelConfig:
    """The shape that papers count: heads fill the hidden size, a plain MLP of four times it."""
    head_size = hidden // heads
    return ModelConfig(layers, hidden, 4 * hidden, heads, heads, head_size, vocabulary, gated=False)


@each(
    ("name", "parameters"),
    [
        ("llama-7b", 6_738_415_616),
        ("llama2-13b", 13_015_864_320),
        ("llama2-70b", 68_976_648_192),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3.2-1b", 1_235_814_400),
        ("llama3.2-3b", 3_212_749_824),
        ("mistral-7b-v0.1", 7_241_732_096),
        ("mistral-7b-v0.3", 7_248_023_552),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-32b", 32_762_123_264),
        ("gemma2-2b", 2_614_341_888),
        ("gemma2-9b", 9_241_705_984),
        ("gemma2-27b", 27_227_128_320),
        ("gemma3-1b", 999_885_952),
        ("phi-3-mini", 3_821_079_552),
        ("phi-3-medium", 13_960_238_080),
        ("phi-4", 14_659_507_200),
        ("olmo2-7b", 7_298_617_344),
        ("olmo2-13b", 13_716_198_400),
        ("olmo2-32b", 32_234_279_936),
    ],
)
def test_parameters_are_those_of_the_published_checkpoints(name: str, parameters: int) -> None:
    assert model(name).parameters == parameters


def test_a_plain_layer_has_twelve_hidden_squared_weights() -> None:
    assert gpt(2, 64, 4, 100).layer_weights == 12 * 64**2


def test_biases_and_norms_are_parameters_but_no_flops() -> None:
    plain = ModelConfig(3, 8, 20, 2, 1, 4, 10)
    dressed = replace(plain, qkv_bias=True, qk_norm=True)
    # per layer: biases of 8 queries, 4 keys and 4 values; a norm of 4 for queries and for keys
    assert dressed.parameters - plain.parameters == 3 * (16 + 8)
    assert dressed.flops_per_token == plain.flops_per_token
    assert dressed.layer_weights == plain.layer_weights
    # queries and keys before their norms, of 2 bytes each
    assert dressed.saved_bytes - plain.saved_bytes == 2 * (8 + 4)


def test_a_model_is_itself_up_to_its_fixed_frequencies() -> None:
    plain = ModelConfig(1, 8, 20, 2, 1, 4, 10, max_positions=64)
    dynamic = replace(plain, rope_scaling=RopeScaling("dynamic", 2.0))
    bounds = [plain, replace(plain, window=32), dynamic, replace(dynamic, window=80)]
    assert [config.longest for config in bounds] == [None, None, 64, 64]
    plain.refuse_length(10**9)
    dynamic.refuse_length(64)
    with pytest.raises(ShapeError, match="65 tokens exceeds the 64 positions"):
        dynamic.refuse_length(65)


def test_grouped_heads_shrink_keys_and_values_only() -> None:
    grouped, full = model("llama3-8b"), ModelConfig(32, 4096, 14336, 32, 32, 128, 128256)
    assert grouped.kv_bytes * 4 == full.kv_bytes == 2 * 4096 * 2
    assert full.layer_weights - grouped.layer_weights == 2 * 4096 * 128 * (32 - 8)
    assert grouped.pair_flops == full.pair_flops == 4 * 4096
    assert grouped.saved_bytes == full.saved_bytes


def test_saved_activations_are_the_34_h_of_the_papers_without_dropout_masks() -> None:
    """arXiv:2401.10241 counts s b (34 h + 5 a s) bytes per layer: 2 h of them are two dropout
    masks of one byte, and the 5 a s are scores that are not kept when a log-sum-exp is.
    """
    config = gpt(1, 96, 6, 50)
    log_sum_exp = 4 * config.heads
    assert config.saved_bytes + config.kv_bytes - log_sum_exp == (34 - 2) * 96


def test_the_stash_is_the_32_h_of_the_papers() -> None:
    """arXiv:2401.10241: M_W = 32 s b h bytes per layer."""
    assert gpt(1, 96, 6, 50).stash_bytes == 32 * 96


def test_a_gated_layer_saves_and_stashes_one_more_product() -> None:
    gated = ModelConfig(1, 8, 20, 2, 1, 4, 10)
    # norms 4 x 8, query and attention output 2 x 8, gate, up and their product 3 x 20
    assert gated.saved_bytes == 2 * (32 + 16 + 60) + 4 * 2
    # inputs 8 + 8 + 8 + 20; gradients of Q K V 16, of the attention output 8, of the MLP 40 and 8
    assert gated.stash_bytes == 2 * (44 + 16 + 8 + 48)


def test_every_preset_can_be_found_and_a_misspelt_one_gets_a_hint() -> None:
    assert all(model(name) is config for name, config in MODELS.items())
    with pytest.raises(ShapeError, match="did you mean 'llama-7b'"):
        model("lama-7b")


@each(
    ("change", "message"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"ffn": -1}, "ffn is -1"),
        ({"hidden": 6.5}, "hidden is 6.5"),
        ({"kv_heads": 3}, "4 heads cannot share 3"),
        ({"layers": True}, "layers is True"),
        ({"head_size": 15}, "head_size is 15, but rotary positions rotate pairs"),
        ({"tied": 1}, "tied is 1"),
        ({"qk_norm": None}, "qk_norm is None"),
        ({"rope_theta": 0.0}, "rope_theta is 0.0"),
        ({"norm_epsilon": float("nan")}, "norm_epsilon is nan"),
        ({"rope_scaling": {"factor": 2}}, "rope_scaling is {'factor': 2}"),
        ({"window": 0}, "window is 0"),
        ({"max_positions": None}, "max_positions is None"),
        ({"window_pattern": [True]}, r"window_pattern is \[True\]"),
        ({"window_pattern": (1,)}, r"window_pattern is \(1,\)"),
        ({"activation": "relu"}, "activation is 'relu'"),
        ({"norms": "befor"}, "norms is 'befor'\nhint: did you mean 'before'"),
        ({"qk_norm_over": 4}, "qk_norm_over is 4"),
        ({"score_cap": 0}, "score_cap is 0"),
        ({"logit_cap": -1.0}, "logit_cap is -1.0"),
        ({"query_scalar": "d"}, "query_scalar is 'd'"),
        ({"norm_adds_one": 1}, "norm_adds_one is 1"),
    ],
)
def test_impossible_models_are_refused(change: dict[str, Any], message: str) -> None:
    numbers = {
        "layers": 4, "hidden": 64, "ffn": 192, "heads": 4, "kv_heads": 2, "head_size": 16,
        "vocabulary": 256,
    }  # fmt: skip
    with pytest.raises(ShapeError, match=message):
        ModelConfig(**{**numbers, **change})

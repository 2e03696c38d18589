"""Configs as they are published, and configs that mean something which is not supported."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loops import each
from penstock.arch.config import ModelConfig
from penstock.arch.families import FAMILIES, from_huggingface, to_huggingface
from penstock.arch.presets import MODELS, model
from penstock.arch.rope_scaling import RopeScaling
from penstock.errors import PenstockError, ShapeError

Json = dict[str, object]

LLAMA: Json = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 64,
}
QWEN: Json = {**LLAMA, "model_type": "qwen2", "num_key_value_heads": 2}
MISTRAL: Json = {**LLAMA, "model_type": "mistral", "num_key_value_heads": 2}

LLAMA_3_2_1B: Json = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}
MISTRAL_7B_V0_1: Json = {
    "architectures": ["MistralForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.34.0.dev0",
    "use_cache": True,
    "vocab_size": 32000,
}
QWEN_2_5_7B: Json = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "hidden_act": "silu",
    "hidden_size": 3584,
    "initializer_range": 0.02,
    "intermediate_size": 18944,
    "max_position_embeddings": 131072,
    "max_window_layers": 28,
    "model_type": "qwen2",
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1",
    "use_cache": True,
    "use_mrope": False,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
QWEN_3_8B: Json = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 12288,
    "max_position_embeddings": 40960,
    "max_window_layers": 36,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}


@pytest.mark.parametrize(
    ("published", "name"),
    [
        (LLAMA_3_2_1B, "llama3.2-1b"),
        (MISTRAL_7B_V0_1, "mistral-7b-v0.1"),
        (QWEN_2_5_7B, "qwen2.5-7b"),
        (QWEN_3_8B, "qwen3-8b"),
    ],
)
def test_published_files_are_the_presets(published: Json, name: str) -> None:
    assert from_huggingface(published) == model(name)


def test_keys_of_the_published_files_of_phi_are_read() -> None:
    phi = {**LLAMA, "model_type": "phi3"}
    own_code = {"auto_map": {"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}}
    of_phi_4_mini = {"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False}
    assert from_huggingface({**phi, **own_code, **of_phi_4_mini}) == from_huggingface(phi)


@each("name", MODELS)
def test_what_is_written_is_read_as_the_same_model(name: str) -> None:
    assert from_huggingface(to_huggingface(model(name))) == model(name)


@pytest.mark.parametrize(
    "config",
    [
        ModelConfig(2, 32, 48, 4, 2, 8, 64, window=16, qkv_bias=True),
        ModelConfig(2, 32, 48, 4, 2, 8, 64, window=16, qk_norm=True),
        ModelConfig(2, 40, 48, 6, 2, 8, 64, element_bytes=4),
        ModelConfig(2, 32, 48, 4, 2, 8, 64, rope_scaling=RopeScaling("linear", 2.0)),
        ModelConfig(2, 32, 48, 4, 2, 8, 64, rope_scaling=RopeScaling("dynamic", 2.0)),
        ModelConfig(2, 32, 48, 4, 2, 8, 64, rope_scaling=RopeScaling("yarn", 4.0, 64)),
        ModelConfig(
            *(2, 32, 48, 4, 2, 8, 64),
            rope_scaling=RopeScaling("yarn", 4.0, 64, beta_fast=9.0, attention_factor=1.5),
        ),
    ],
)
def test_every_part_of_a_model_survives_writing(config: ModelConfig) -> None:
    assert from_huggingface(to_huggingface(config)) == config


def test_the_old_and_the_new_layout_of_rotary_positions_are_one() -> None:
    numbers = {"factor": 4.0, "original_max_position_embeddings": 64}
    old = {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", **numbers}}
    new = {"rope_parameters": {"rope_theta": 1e6, "rope_type": "yarn", **numbers}}
    one, other = from_huggingface({**LLAMA, **old}), from_huggingface({**LLAMA, **new})
    assert one == other
    assert one.rope_theta == 1e6
    assert one.rope_scaling == RopeScaling("yarn", 4.0, 64)


def test_two_weights_of_yarn_become_the_scale_they_amount_to() -> None:
    numbers = {"factor": 40, "mscale": 1.0, "mscale_all_dim": 0.5}
    stated = {"rope_type": "yarn", "original_max_position_embeddings": 64, **numbers}
    scaling = from_huggingface({**LLAMA, "rope_scaling": stated}).rope_scaling
    assert scaling is not None
    # (0.1 ln 40 + 1) / (0.05 ln 40 + 1), ln 40 = 3.68888
    assert scaling.scale == pytest.approx(1.368888 / 1.184444, rel=1e-6)


def test_a_window_that_no_layer_has_is_none() -> None:
    switched_off = {**QWEN, "use_sliding_window": False, "sliding_window": 8}
    above_all_layers = {**QWEN, "use_sliding_window": True, "max_window_layers": 2}
    assert from_huggingface(switched_off).window is None
    assert from_huggingface(above_all_layers).window is None
    assert from_huggingface({**MISTRAL, "sliding_window": None}).window is None


def test_a_window_of_all_layers_has_no_pattern() -> None:
    every = {**QWEN, "use_sliding_window": True, "max_window_layers": 0, "sliding_window": 8}
    for stated in (every, {**MISTRAL, "sliding_window": 8}):
        config = from_huggingface(stated)
        assert (config.window, config.window_pattern) == (8, ())
        config.refuse_length(10**6)


def test_head_sizes_follow_from_the_heads_unless_stated() -> None:
    assert from_huggingface(LLAMA).head_size == 8
    assert from_huggingface({**LLAMA, "head_dim": None}).head_size == 8
    assert from_huggingface({**LLAMA, "head_dim": 12}).head_size == 12
    assert from_huggingface({**QWEN, "model_type": "qwen3"}).head_size == 128


@each(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported"),
        ({"model_type": None}, "config.json has no model_type"),
        (
            {"model_type": "qwen"},
            "supported are llama, mistral, qwen2, qwen3, gemma2, gemma3_text, phi3",
        ),
        ({"hidden_size": None}, "config.json has no hidden_size"),
        ({"hidden_size": "32"}, "hidden_size is '32'"),
        ({"hidden_size": 33}, "hidden_size 33 is not a multiple of num_attention_heads 4"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', which is not supported"),
        ({"attention_bias": True}, "attention_bias is True, which is not supported"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"lm_head_bias": True}, "lm_head_bias is True"),
        ({"interpolate_factor": 2}, "interpolate_factor is 2"),
        ({"full_attn_mod": 2}, "full_attn_mod is 2"),
        ({"attention_dropout": 0.1}, "attention_dropout is 0.1"),
        ({"pretraining_tp": 2}, "pretraining_tp is 2"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"quantization_config": {"bits": 4}}, "not known: quantization_config"),
        ({"auto_map": {"AutoModel": "x"}}, "not known: auto_map"),
        ({"residual_multiplier": 0.2, "logit_scale": 2}, "not known: logit_scale, residual_mult"),
        ({"sliding_window": 16}, "'llama' has no sliding window"),
        ({"dtype": "float8_e4m3fn"}, "dtype 'float8_e4m3fn' is not supported"),
        ({"rms_norm_eps": -1}, "norm_epsilon is -1"),
        ({"tie_word_embeddings": "yes"}, "tied is yes"),
        ({"rope_scaling": {"rope_type": "shortrope"}}, "rope_type 'shortrope' is not supported"),
        (
            {"rope_scaling": {"rope_type": "longrope"}},
            "'longrope' has no short_factor, long_factor",
        ),
        (
            {"rope_scaling": {"rope_type": "longrope", "short_factor": 1, "long_factor": [1.0]}},
            "short_factor is 1",
        ),
        (
            {"rope_scaling": {"type": "su", "short_factor": [1.0] * 3, "long_factor": [1.0] * 4}},
            "short_factors has 3 numbers, but heads of 8 elements have 4 frequencies",
        ),
        ({"rope_scaling": {"type": "linear"}}, "'linear' has no factor"),
        ({"rope_scaling": {"factor": 2.0}}, "rope_type 'default' has no factor"),
        ({"rope_scaling": {"type": "linear", "rope_type": "yarn"}}, "'yarn' and type is 'linear'"),
        ({"rope_scaling": {"type": "linear", "factor": 2, "beta_fast": 8}}, "has no beta_fast"),
        ({"rope_scaling": {"type": "llama3", "factor": 8}}, "no low_freq_factor, high_freq"),
        ({"rope_scaling": "linear"}, "rope_scaling is not one object"),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}},
            "rope_parameters is not one object of numbers for all layers",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_theta": 9}},
            "both given and differ",
        ),
        ({"rope_parameters": {"partial_rotary_factor": 0.25}}, "partial_rotary_factor is 0.25"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change: Json, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        from_huggingface({**LLAMA, **change})


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        ({"sliding_window": 8, "max_window_layers": 1}, (False, True)),
        ({"layer_types": ["sliding_attention", "full_attention"]}, (True, False)),
        ({"layer_types": ["sliding_attention"] * 2}, ()),
    ],
)
def test_windows_of_some_layers_are_a_pattern(change: Json, pattern: tuple[bool, ...]) -> None:
    config = from_huggingface({**QWEN, "use_sliding_window": True, **change})
    assert config.window_pattern == pattern
    assert from_huggingface(to_huggingface(config)) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_types": ["sliding_attention"] * 2}, "but the model has no sliding window"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "layer 1 has 'linear_attention'"),
        (
            {"layer_types": ["full_attention"]},
            "layer_types has 1 names, but num_hidden_layers is 2",
        ),
        ({"layer_types": "full"}, "layer_types is 'full'"),
    ],
)
def test_layer_types_that_say_something_else_are_refused(change: Json, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        from_huggingface({**QWEN, **change})


def test_what_no_family_has_cannot_be_written() -> None:
    with pytest.raises(ShapeError, match="is made of qkv_bias = True, qk_norm = True"):
        to_huggingface(ModelConfig(2, 32, 48, 4, 2, 8, 64, qkv_bias=True, qk_norm=True))
    with pytest.raises(ShapeError, match="is made of gated = False"):
        to_huggingface(ModelConfig(2, 32, 48, 4, 2, 8, 64, gated=False))
    with pytest.raises(ShapeError, match="element_bytes 3"):
        to_huggingface(ModelConfig(2, 32, 48, 4, 2, 8, 64, element_bytes=3))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
ROPE = st.dictionaries(
    st.sampled_from(
        ["rope_type", "rope_theta", "factor", "original_max_position_embeddings", "mscale"]
        + ["mscale_all_dim", "truncate", "beta_fast", "attention_factor", "low_freq_factor"]
    ),
    JUNK | st.sampled_from(["yarn", "linear", "llama3"]),
)


# no word of slowness: it takes milliseconds to make up a configuration, and a busy machine is no
# defect of a reader
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    base=st.sampled_from(sorted(FAMILIES)),
    change=st.dictionaries(st.sampled_from(sorted({**QWEN_3_8B, "layer_types": 0})), JUNK),
    rope=st.none() | ROPE | ROPE.map(lambda numbers: {**numbers, "rope_type": "yarn"}),
)
def test_whatever_stands_in_a_config_it_is_read_or_refused(
    base: str, change: Json, rope: Json | None
) -> None:
    stated = {**LLAMA, "model_type": base, "rope_scaling": rope, **change}
    try:
        config = from_huggingface(stated)
    except PenstockError:
        return
    assert from_huggingface(to_huggingface(config)) == config


@each(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10**18}, "num_hidden_layers is 1000000000000000000"),
        ({"num_hidden_layers": 10**18, "use_sliding_window": True}, "num_hidden_layers is 10000"),
        ({"sliding_window": 10**18, "use_sliding_window": True}, "sliding_window is 10000"),
        ({"hidden_size": 10**5000}, "hidden_size is a number of 16,610 bits"),
        ({"max_position_embeddings": 10**18}, "max_position_embeddings is 1000"),
        ({"rope_theta": 10**400}, "rope_theta is a number of 1,329 bits"),
        ({"rope_theta": 1e300}, r"rope_theta is 1e\+300"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 10**400}}, "factor is a number of"),
        (
            {"rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 10**400}},
            "original_max_position_embeddings is a number of",
        ),
        ({"rms_norm_eps": 1e-300}, "norm_epsilon is 1e-300"),
    ],
)
def test_numbers_that_no_model_has_are_refused_at_once(changes: Json, message: str) -> None:
    with pytest.raises(ShapeError, match=message) as caught:
        from_huggingface({**QWEN, **changes})
    assert caught.value.hint.startswith("give ")


def test_a_family_with_a_similar_name_is_not_proposed() -> None:
    with pytest.raises(ShapeError, match="model_type 'ministral' is not supported") as refusal:
        from_huggingface({**MISTRAL, "model_type": "ministral"})
    assert refusal.value.hint == f"supported are {', '.join(FAMILIES)}"

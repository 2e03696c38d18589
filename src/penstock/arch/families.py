"""Hugging Face's model families as configurations of the one model that is here.

Llama, Mistral, Qwen2 and Qwen3 are one architecture with a few switches, each spelled as a
`config.json` with defaults of its own. A key that changes the model in a way that is not here is
refused by name, and so is a key that is not known: a model that is loaded is that model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.arch.config import ModelConfig
from penstock.arch.huggingface_keys import SIZE_KEYS, refuse_keys
from penstock.arch.rope_keys import read_rope, write_rope
from penstock.arch.window_keys import (
    NO_WINDOW,
    SWITCHED_WINDOW,
    WINDOW_OF_ALL,
    WindowRule,
)
from penstock.errors import ShapeError, shown


@dataclass(frozen=True)
class Family:
    """What a `model_type` stands for; `defaults` are for keys that its files may leave out."""

    model_type: str
    architecture: str
    window: WindowRule
    defaults: Mapping[str, Any]
    qkv_bias: bool = False
    qk_norm: bool = False


FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        Family("llama", "LlamaForCausalLM", NO_WINDOW, {"max_position_embeddings": 2048}),
        Family(
            "mistral",
            "MistralForCausalLM",
            WINDOW_OF_ALL,
            {"max_position_embeddings": 131072, "num_key_value_heads": 8},
        ),
        Family(
            "qwen2",
            "Qwen2ForCausalLM",
            SWITCHED_WINDOW,
            {"max_position_embeddings": 32768, "num_key_value_heads": 32},
            qkv_bias=True,
        ),
        Family(
            "qwen3",
            "Qwen3ForCausalLM",
            SWITCHED_WINDOW,
            {"max_position_embeddings": 32768, "num_key_value_heads": 32, "head_dim": 128},
            qk_norm=True,
        ),
    )
}

BYTES: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}
"""Types of numbers that a model is stored in, and bytes of one."""
_DTYPES = {2: "bfloat16", 4: "float32", 8: "float64"}


def from_huggingface(config: Mapping[str, Any]) -> ModelConfig:
    """The model that the content of a `config.json` describes."""
    family = _family(config)
    stated = {key: value for key, value in config.items() if value is not None}
    refuse_keys(stated)
    values = {**family.defaults, **config}
    positions = stated.get("max_position_embeddings", family.defaults["max_position_embeddings"])
    theta, scaling = read_rope(stated, positions)
    return ModelConfig(
        **{ours: stated[theirs] for ours, theirs in SIZE_KEYS.items()},
        kv_heads=values.get("num_key_value_heads") or stated["num_attention_heads"],
        head_size=values.get("head_dim") or _head_size(stated),
        tied=stated.get("tie_word_embeddings", False),
        element_bytes=_element_bytes(stated),
        rope_theta=theta,
        rope_scaling=scaling,
        norm_epsilon=stated.get("rms_norm_eps", 1e-6),
        qkv_bias=family.qkv_bias,
        qk_norm=family.qk_norm,
        window=family.window.read(config),
        max_positions=positions,
    )


def to_huggingface(config: ModelConfig) -> dict[str, Any]:
    """The content of a `config.json` that describes the model, of the family that has its parts."""
    family = FAMILIES[_model_type(config)]
    return {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        **{theirs: getattr(config, ours) for ours, theirs in SIZE_KEYS.items()},
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_epsilon,
        **write_rope(config),
        **family.window.write(config.window),
        "tie_word_embeddings": config.tied,
        "attention_dropout": 0.0,
        "torch_dtype": dtype_name(config),
    }


def dtype_name(config: ModelConfig) -> str:
    """The type of numbers that has as many bytes as the model's activations."""
    if config.element_bytes not in _DTYPES:
        raise ShapeError(
            f"no dtype has element_bytes {config.element_bytes}",
            hint=f"one of: {', '.join(map(str, _DTYPES))}",
        )
    return _DTYPES[config.element_bytes]


def _model_type(config: ModelConfig) -> str:
    """A family that has every part of the model; where several do, the plainest."""
    if not config.gated or (config.qkv_bias and config.qk_norm):
        parts = "biases and norms of queries and keys" if config.gated else "a plain MLP"
        raise ShapeError(
            f"no Hugging Face family has {parts}", hint=f"families: {', '.join(FAMILIES)}"
        )
    if config.qk_norm:
        return "qwen3"
    if config.qkv_bias:
        return "qwen2"
    # transformers lets only mistral have a hidden size that the heads do not divide
    return "mistral" if config.window or config.hidden % config.heads else "llama"


def _family(config: Mapping[str, Any]) -> Family:
    name = str(config.get("model_type"))
    if name not in FAMILIES:
        raise ShapeError(
            f"model_type {shown(name)} is not supported",
            # no guess: a name that is alike (mixtral, mistral) is another architecture
            hint=f"supported are {', '.join(FAMILIES)}",
        )
    return FAMILIES[name]


def _head_size(stated: Mapping[str, Any]) -> int:
    hidden, heads = stated["hidden_size"], stated["num_attention_heads"]
    if hidden % heads:
        raise ShapeError(
            f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}",
            hint="state head_dim",
        )
    return int(hidden // heads)


def stated_dtype(config: Mapping[str, Any]) -> str:
    """The type of numbers that a `config.json` says its weights have; empty where it says none."""
    return str(config.get("dtype") or config.get("torch_dtype") or "").removeprefix("torch.")


def _element_bytes(stated: Mapping[str, Any]) -> int:
    name = stated_dtype(stated) or "bfloat16"
    if name not in BYTES:
        raise ShapeError(
            f"dtype {shown(name)} is not supported", hint=f"one of: {', '.join(BYTES)}"
        )
    return BYTES[name]

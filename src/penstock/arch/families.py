"""Hugging Face's model families as configurations of the one model that is here.

What a family is made of is said by its record (family.py); here files are read and written by it. A
key that changes the model in a way that is not here is refused by
name, and so is a key that is not known: a model that is loaded is that model.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from penstock.arch.block_keys import BLOCK_KEY, family_name, read_blocks, write_blocks
from penstock.arch.config import ModelConfig
from penstock.arch.family import FAMILIES as FAMILIES
from penstock.arch.family import Family
from penstock.arch.huggingface_keys import SIZE_KEYS, refuse_keys
from penstock.arch.rope_keys import (
    LOCAL_KEY,
    SHARE_KEY,
    part_local,
    read_rope,
    read_rotary_size,
    rotary_share,
    write_rope,
)
from penstock.arch.rope_scaling import RopeScaling
from penstock.arch.subsampling_keys import read_subsampling, write_subsampling
from penstock.errors import ShapeError, shown

BYTES: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}
"""Types of numbers that a model is stored in, and bytes of one."""
_DTYPES = {2: "bfloat16", 4: "float32", 8: "float64"}

_PARTS = tuple(dict.fromkeys(part for family in FAMILIES.values() for part in family.parts))
"""Fields by which families differ."""
_KEYS = tuple(dict.fromkeys(name for family in FAMILIES.values() for name in family.keys))
"""Fields that not all families have."""
_USUAL = {each.name: each.default for each in fields(ModelConfig)}


def from_huggingface(config: Mapping[str, Any]) -> ModelConfig:
    """The model that the content of a `config.json` describes."""
    config, subsampling = read_subsampling(config)
    family = family_of(config)
    stated = {key: value for key, value in config.items() if value is not None}
    refuse_keys(stated, family.fixed, (*family.own_keys, BLOCK_KEY))
    values = {**family.defaults, **config}
    positions = stated.get("max_position_embeddings", family.defaults["max_position_embeddings"])
    head_size = values.get("head_dim") or _head_size(stated)
    turned = _rope(family, stated, positions, head_size)
    sizes = {ours: stated[theirs] for ours, theirs in SIZE_KEYS.items()}
    return ModelConfig(
        **(sizes | (family.mixture.read(values) if family.mixture else {})),
        kv_heads=values.get("num_key_value_heads") or stated["num_attention_heads"],
        head_size=head_size,
        tied=stated.get("tie_word_embeddings", family.defaults.get("tie_word_embeddings", False)),
        element_bytes=_element_bytes(stated),
        norm_epsilon=stated.get("rms_norm_eps", family.defaults.get("rms_norm_eps", 1e-6)),
        max_positions=positions,
        **turned,
        **family.window.read(config)._asdict(),
        **family.parts,
        **_own_fields(family, values, head_size),
        blocks=read_blocks(config),
        subsampling=subsampling,
    )


def _rope(family: Family, stated: dict[str, Any], positions: int, head_size: int) -> dict[str, Any]:
    """The fields of rotary positions."""
    local = None
    if family.local_theta is not None:
        stated, local = part_local(stated, family.local_theta)
    inherited = ("original_max_position_embeddings",)
    plain = {key: family.defaults[key] for key in inherited if key in family.defaults}
    theta, scaling = read_rope({**plain, **stated}, positions, family.theta)
    _refuse_scaling(family, scaling)
    size = read_rotary_size(stated, head_size)
    if size is not None and SHARE_KEY not in family.keys.values():
        raise ShapeError(
            f"{SHARE_KEY} is {size / head_size:g}, but model_type {family.model_type!r} turns "
            "whole heads",
            hint=f"leave out {SHARE_KEY}",
        )
    found = {"rope_theta": theta, "rope_scaling": scaling, "local_rope_theta": local}
    return found | {"rotary_size": size}


def _own_fields(family: Family, values: Mapping[str, Any], head_size: int) -> dict[str, Any]:
    """Fields that only this family has; a scalar that is the head size is no other."""
    found = {name: values.get(key) for name, key in family.keys.items() if key != SHARE_KEY}
    if found.get("query_scalar") == head_size:
        found["query_scalar"] = None
    return found


def to_huggingface(config: ModelConfig) -> dict[str, Any]:
    """The content of a `config.json` that describes the model, of the family that has its parts."""
    family = FAMILIES[_model_type(config)]
    _refuse_unstated(config, family)
    _refuse_scaling(family, config.rope_scaling)
    stated = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        **{theirs: getattr(config, ours) for ours, theirs in SIZE_KEYS.items()},
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        **{key: value for key, (value, _) in family.fixed.items()},
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_epsilon,
        **write_rope(config),
        **family.window.write(config),
        **_own_keys(config, family),
        **_expert_keys(config, family),
        "tie_word_embeddings": config.tied,
        "attention_dropout": 0.0,
        "pad_token_id": None,  # transformers would assume one, perhaps beyond the vocabulary
        "torch_dtype": dtype_name(config),
        **write_blocks(config, family.model_type),
    }
    return write_subsampling(stated, config.subsampling)


def _own_keys(config: ModelConfig, family: Family) -> dict[str, Any]:
    """Keys that only this family has."""
    found = {key: getattr(config, name) for name, key in family.keys.items()}
    if SHARE_KEY in found:
        found[SHARE_KEY] = rotary_share(config)
    if "query_scalar" in family.keys:
        scalar = config.query_scalar or config.head_size
        # transformers wants an integer where it is one
        found[family.keys["query_scalar"]] = int(scalar) if scalar == int(scalar) else scalar
    if family.local_theta is not None and config.local_rope_theta is None:
        if config.rope_scaling is not None:
            raise ShapeError(
                f"files of model_type {family.model_type!r} do not scale the rotary positions of "
                "layers with a window, but local_rope_theta is not given",
                hint="give local_rope_theta, or leave out rope_scaling",
            )
        found[LOCAL_KEY] = config.rope_theta
    return found


def _expert_keys(config: ModelConfig, family: Family) -> dict[str, Any]:
    """Keys of experts."""
    if family.mixture is None or config.mixture is None:
        return {}
    return family.mixture.write(config.ffn, config.mixture)


def dtype_name(config: ModelConfig) -> str:
    """The type of numbers that has as many bytes as the model's activations."""
    if config.element_bytes not in _DTYPES:
        raise ShapeError(
            f"no dtype has element_bytes {config.element_bytes}",
            hint=f"one of: {', '.join(map(str, _DTYPES))}",
        )
    return _DTYPES[config.element_bytes]


def _model_type(config: ModelConfig) -> str:
    """The first family that has exactly the parts of the model, and can state the others."""
    own = {part: getattr(config, part) for part in ("gated", *_PARTS)}
    unusual = {part: value for part, value in own.items() if value != _USUAL[part]}
    found = [
        each
        for each in FAMILIES.values()
        if dict(each.parts) == unusual and each.has(config.mixture)
    ]
    if not found:
        experts = {"mixture.family": config.mixture.family} if config.mixture else {}
        unusual |= experts
        parts = ", ".join(f"{part} = {value!r}" for part, value in unusual.items())
        raise ShapeError(
            f"no Hugging Face family is made of {parts}", hint=f"families: {', '.join(FAMILIES)}"
        )
    # transformers lets only mistral have a hidden size that the heads do not divide
    mistral = config.window or config.hidden % config.heads
    return found[-1 if mistral else 0].model_type


def _refuse_unstated(config: ModelConfig, family: Family) -> None:
    """Refuse what files of the family have no key for."""
    local = () if family.local_theta is not None else ("local_rope_theta",)
    missing = [name for name in (*_KEYS, *local) if name not in family.keys]
    for name in missing:
        if getattr(config, name) is not None:
            raise ShapeError(
                f"{name} is {getattr(config, name)}, but files of model_type "
                f"{family.model_type!r}, which has the other parts of the model, cannot state it",
                hint=f"leave out {name}",
            )


def _refuse_scaling(family: Family, scaling: RopeScaling | None) -> None:
    if scaling is not None and scaling.kind not in family.scalings:
        raise ShapeError(
            f"rope scaling {scaling.kind} is unknown to model_type {family.model_type!r}",
            hint=f"it has {', '.join(family.scalings)}",
        )


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of the model that a `config.json` describes."""
    # no guess: a name that is alike (ministral, mistral) is another architecture
    hint = f"supported are {', '.join(FAMILIES)}"
    if config.get("model_type") is None:
        raise ShapeError("config.json has no model_type", hint=hint)
    name = family_name(str(config["model_type"]))
    if name not in FAMILIES:
        raise ShapeError(f"model_type {shown(name)} is not supported", hint=hint)
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

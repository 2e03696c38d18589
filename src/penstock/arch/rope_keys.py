"""Rotary positions as `config.json` states them, in its two layouts.

    transformers 4    "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", ...} or null
    transformers 5    "rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", ...}

Both are read; the first is written, because both versions understand it. A key that its variant
does not have is refused: it was meant to change something.
"""

from collections.abc import Mapping
from typing import Any

from penstock.arch.config import ModelConfig
from penstock.arch.limits import refuse_number
from penstock.arch.rope_scaling import NUMBERS, RopeScaling, yarn_scale
from penstock.errors import ShapeError, shown

ROPE_KEYS = (
    *("rope_theta", "rope_scaling", "rope_parameters"),
    *("partial_rotary_factor", "original_max_position_embeddings"),
)
"""Keys of a config that say something about rotary positions."""

PLAIN_THETA = 10000.0

_THEIRS: Mapping[str, str] = {
    "factor": "factor",
    "original_positions": "original_max_position_embeddings",
    "low_factor": "low_freq_factor",
    "high_factor": "high_freq_factor",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "attention_factor": "attention_factor",
    "truncate": "truncate",
}
"""Our names of a variant's numbers, and those of `config.json`."""

_HEADS = ("rope_theta", "rope_type", "type", "partial_rotary_factor")
_WEIGHTS = ("mscale", "mscale_all_dim")


def read_rope(config: Mapping[str, Any], positions: int) -> tuple[float, RopeScaling | None]:
    """Base and variant of the frequencies of a config with that many positions."""
    stated = _stated(config)
    partial = stated.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if partial not in (None, 1):
        raise ShapeError(
            f"partial_rotary_factor is {shown(partial)}, but rotary positions "
            "are applied to whole heads only",
            hint="models that apply them to a part of each head are not supported",
        )
    theta = stated.get("rope_theta", config.get("rope_theta", PLAIN_THETA))
    kind = _kind(stated)
    if kind == "default":
        _refuse_foreign(stated, kind, _HEADS)
        return theta, None
    if kind not in NUMBERS:
        raise ShapeError(
            f"rope_type {shown(kind)} is not supported",
            hint=f"these are: default, {', '.join(NUMBERS)}",
        )
    return theta, _scaling(kind, {**_inherited(config, kind, positions), **stated}, positions)


def _stated(config: Mapping[str, Any]) -> dict[str, Any]:
    """The object that describes the variant, with the keys that say something."""
    given = {key: config[key] for key in ("rope_scaling", "rope_parameters") if config.get(key)}
    for key, value in given.items():
        if not isinstance(value, Mapping) or any(isinstance(v, Mapping) for v in value.values()):
            raise ShapeError(
                f"{key} is not one object of numbers for all layers",
                hint="rotary positions that differ between layers are not supported",
            )
    objects = [{k: v for k, v in value.items() if v is not None} for value in given.values()]
    if len(objects) == 2 and objects[0] != objects[1]:
        raise ShapeError(
            "rope_scaling and rope_parameters are both given and differ",
            hint="leave one of them out of config.json",
        )
    return objects[0] if objects else {}


def _kind(stated: Mapping[str, Any]) -> str:
    names = {str(stated[key]) for key in ("rope_type", "type") if key in stated}
    if len(names) > 1:
        raise ShapeError(
            f"rope_type is {shown(stated['rope_type'])} and type is {shown(stated['type'])}",
            hint="leave one of them out of config.json",
        )
    return names.pop() if names else "default"


def _inherited(config: Mapping[str, Any], kind: str, positions: int) -> dict[str, Any]:
    """What a variant takes from the model where it does not say it itself."""
    if "original_positions" not in NUMBERS[kind]:
        return {}
    original = config.get("original_max_position_embeddings", positions)
    return {"original_max_position_embeddings": original}


def _scaling(kind: str, stated: dict[str, Any], positions: int) -> RopeScaling:
    numbers = {name: _THEIRS[name] for name in NUMBERS[kind]}
    weights = _WEIGHTS if kind == "yarn" else ()
    _refuse_foreign(stated, kind, (*_HEADS, *numbers.values(), *weights))
    for key in stated:
        if key not in (*_HEADS, "truncate"):
            refuse_number(f"rope_type {kind!r}: {key}", stated[key])
    found = {name: stated[key] for name, key in numbers.items() if key in stated}
    if kind == "yarn":
        found.setdefault("factor", positions / found["original_positions"])
        found |= _weighted(stated, found["factor"])
    missing = [_THEIRS[name] for name in ("factor", *_needed(kind)) if name not in found]
    if missing:
        raise ShapeError(f"rope_type {kind!r} has no {', '.join(missing)}", hint="add it")
    return RopeScaling(kind, **found)


def _needed(kind: str) -> tuple[str, ...]:
    """Numbers without which transformers has no value for a variant."""
    return ("low_factor", "high_factor") if kind == "llama3" else ()


def _weighted(stated: Mapping[str, Any], factor: float) -> dict[str, float]:
    """The scale that two weights of it amount to; one alone has no effect."""
    one, other = (stated.get(key) for key in _WEIGHTS)
    if "attention_factor" in stated or not one or not other:
        return {}
    return {"attention_factor": yarn_scale(factor, one) / yarn_scale(factor, other)}


def _refuse_foreign(stated: Mapping[str, Any], kind: str, known: tuple[str, ...]) -> None:
    foreign = [key for key in stated if key not in known]
    if foreign:
        raise ShapeError(
            f"rope_type {kind!r} has no {shown(', '.join(foreign))[1:-1]}, but config.json "
            "states it",
            hint="correct rope_type, or leave it out if it has no effect",
        )


def write_rope(config: ModelConfig) -> dict[str, Any]:
    """The keys that state a model's rotary positions."""
    scaling = config.rope_scaling
    if scaling is None:
        return {"rope_theta": config.rope_theta, "rope_scaling": None}
    numbers = {_THEIRS[name]: getattr(scaling, name) for name in NUMBERS[scaling.kind]}
    stated = {key: value for key, value in numbers.items() if value is not None}
    return {
        "rope_theta": config.rope_theta,
        "rope_scaling": {"rope_type": scaling.kind, **stated},
    }

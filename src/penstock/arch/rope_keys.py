"""Rotary positions as `config.json` states them, in its two layouts.

    transformers 4    "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", ...} or null
    transformers 5    "rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", ...}

Both are read; the first is written, because both versions understand it. A key that its variant
does not have is refused: it was meant to change something. Where layers with a window turn by
another base (Gemma 3), the object has one inside for each kind of attention in the second layout,
and "rope_local_base_freq" stands beside it in the first.
"""

from collections.abc import Mapping
from math import nextafter
from typing import Any

from penstock.arch.config import ModelConfig
from penstock.arch.limits import refuse_number
from penstock.arch.rope_scaling import NUMBERS, RopeScaling, yarn_scale
from penstock.arch.window_keys import FULL, SLIDING
from penstock.errors import ShapeError, shown

ROPE_KEYS = (
    *("rope_theta", "rope_scaling", "rope_parameters"),
    *("partial_rotary_factor", "original_max_position_embeddings"),
)
"""Keys of a config that say something about rotary positions."""

PLAIN_THETA = 10000.0
LOCAL_KEY = "rope_local_base_freq"
SHARE_KEY = "partial_rotary_factor"

_THEIRS: Mapping[str, str] = {
    "factor": "factor",
    "original_positions": "original_max_position_embeddings",
    "low_factor": "low_freq_factor",
    "high_factor": "high_freq_factor",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "attention_factor": "attention_factor",
    "truncate": "truncate",
    "short_factors": "short_factor",
    "long_factors": "long_factor",
}
"""Our names of a variant's numbers, and those of `config.json`."""

_HEADS = ("rope_theta", "rope_type", "type", "partial_rotary_factor")
_WEIGHTS = ("mscale", "mscale_all_dim")
_LISTS = ("short_factor", "long_factor")


def read_rope(
    config: Mapping[str, Any], positions: int, plain: float = PLAIN_THETA
) -> tuple[float, RopeScaling | None]:
    """Base and variant of the frequencies of a config with that many positions; `plain` is the base
    where a file leaves it out."""
    stated = _stated(config)
    theta = stated.get("rope_theta", config.get("rope_theta", plain))
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


def read_rotary_size(config: Mapping[str, Any], head_size: int) -> int | None:
    """Elements of a head that are turned; None: all of them."""
    share = _stated(config).get(SHARE_KEY, config.get(SHARE_KEY))
    if share is None or share == 1:
        return None
    refuse_number(SHARE_KEY, share)
    return int(head_size * share)


def rotary_share(config: ModelConfig) -> float:
    """The number that stands for the elements of a head that are turned."""
    share = config.turned_size / config.head_size
    return share if int(config.head_size * share) == config.turned_size else nextafter(share, 1)


def part_local(config: Mapping[str, Any], plain: float) -> tuple[dict[str, Any], float]:
    """A config as it would be without another base for layers with a window, and that base;
    `plain` where the file leaves it out."""
    nested = config.get("rope_parameters")
    kept = {key: value for key, value in config.items() if key != LOCAL_KEY}
    if not isinstance(nested, Mapping) or not {*nested} <= {FULL, SLIDING} or not nested:
        return kept, config.get(LOCAL_KEY, plain)
    local = nested.get(SLIDING) or {}
    theta, scaling = read_rope({"rope_parameters": local}, 0, config.get(LOCAL_KEY, plain))
    if scaling is not None:
        raise ShapeError(
            f"rotary positions of {SLIDING} are scaled by {scaling.kind}, which is not supported",
            hint="only those of layers without a window may be scaled",
        )
    kept = {
        key: value for key, value in config.items() if key not in ("rope_parameters", LOCAL_KEY)
    }
    return {**kept, "rope_parameters": nested.get(FULL) or {}}, theta


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
    found = names.pop() if names else "default"
    return "longrope" if found == "su" else found  # its name in the first files


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
        if key not in (*_HEADS, "truncate", *_LISTS):
            refuse_number(f"rope_type {kind!r}: {key}", stated[key])
    found = {name: _value(stated, key) for name, key in numbers.items() if key in stated}
    if kind in ("yarn", "longrope"):
        found.setdefault("factor", positions / found["original_positions"])
    if kind == "yarn":
        found |= _weighted(stated, found["factor"])
    missing = [_THEIRS[name] for name in ("factor", *_needed(kind)) if name not in found]
    if missing:
        raise ShapeError(f"rope_type {kind!r} has no {', '.join(missing)}", hint="add it")
    return RopeScaling(kind, **found)


def _needed(kind: str) -> tuple[str, ...]:
    """Numbers without which transformers has no value for a variant."""
    lists = {"llama3": ("low_factor", "high_factor"), "longrope": ("short_factors", "long_factors")}
    return lists.get(kind, ())


def _value(stated: Mapping[str, Any], key: str) -> Any:
    """A number, or the numbers of a list."""
    if key not in _LISTS:
        return stated[key]
    if not isinstance(stated[key], list):
        raise ShapeError(f"{key} is {shown(stated[key])}", hint="give a list of numbers")
    return tuple(stated[key])


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
    scaling, local = config.rope_scaling, config.local_rope_theta
    stated: dict[str, Any] = {"rope_theta": config.rope_theta, "rope_scaling": None}
    if local is not None:
        stated[LOCAL_KEY] = local
    if scaling is None:
        return stated
    numbers = {_THEIRS[name]: getattr(scaling, name) for name in NUMBERS[scaling.kind]}
    given = {key: value for key, value in numbers.items() if value is not None}
    lists = {key: [*given[key]] for key in _LISTS if key in given}
    stated["rope_scaling"] = {"rope_type": scaling.kind, **given, **lists}
    if scaling.kind == "longrope":  # where transformers looks for it first
        stated[_THEIRS["original_positions"]] = scaling.original_positions
    return stated

"""A model as a row of JSON gives it: a name, its sizes, or what its config.json says."""

from functools import lru_cache
from typing import Any

from penstock.arch.config import ModelConfig
from penstock.arch.families import from_huggingface
from penstock.errors import ShapeError, nearest, shown
from penstock.estimate.named_model import named_model
from penstock.estimate.plain_values import read_count, read_switch

MODEL_NAMES = ("layers", "hidden", "ffn", "heads", "kv_heads", "head_size", "vocabulary")
_OF_CONFIG = "model_type"
"""A key that every config.json has, and sizes have not."""


def read_model(name: str, value: Any) -> ModelConfig:
    """The model that a value stands for."""
    if isinstance(value, str):
        return named_model(value)
    if not isinstance(value, dict):
        raise ShapeError(f"{name} is {shown(value)}", hint="give a preset's name, or its sizes")
    if _OF_CONFIG in value:
        return from_huggingface(value)
    value = {key: size for key, size in value.items() if size is not None}
    for key, size in value.items():
        if isinstance(size, list | dict):
            hint = "give a number, or yes or no"
            raise ShapeError(f"model.{key[:40]} is {shown(size)}", hint=hint)
    return _sized_model(tuple(((key, value[key]), type(value[key])) for key in sorted(value)))


@lru_cache(maxsize=256)
def _sized_model(items: tuple[tuple[tuple[str, Any], type], ...]) -> ModelConfig:
    """Of sizes with their types, as 1 is equal to true."""
    given = dict(item for item, _ in items)
    known = (*MODEL_NAMES, "gated", "tied")
    for key in given:
        if key not in known:
            raise ShapeError(f"a model has no {shown(key[:40])}", hint=nearest(key[:40], known))
    missing = [key for key in MODEL_NAMES if key not in given and key not in _DERIVED]
    if missing:
        raise ShapeError(f"model has no {', '.join(missing)}", hint=f"give {', '.join(known)}")
    given.setdefault("kv_heads", given["heads"])
    hidden, heads = (read_count(f"model.{key}", given[key]) for key in ("hidden", "heads"))
    if "head_size" not in given and hidden % heads:
        message = f"model.hidden is {hidden:,}, which is not a multiple of model.heads, {heads:,}"
        raise ShapeError(message, hint="give model.head_size")
    given.setdefault("head_size", hidden // heads)
    sizes = {key: read_count(f"model.{key}", given[key]) for key in MODEL_NAMES}
    switches = {
        key: read_switch(f"model.{key}", given[key]) for key in ("gated", "tied") if key in given
    }
    return ModelConfig(**sizes, **switches)  # type: ignore[arg-type]


_DERIVED = ("kv_heads", "head_size")
"""Where they are left out: as many as heads, and hidden over heads."""

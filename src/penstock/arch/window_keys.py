"""Sliding windows as `config.json` states them, which each family does in its own way.

    llama      has none
    mistral    "sliding_window" is the window of every layer, null for none
    qwen       "use_sliding_window" switches it on, from layer "max_window_layers" upwards

A window of every layer is read as a number: up to so many tokens it makes no difference, and longer
sequences are refused (`ModelConfig.refuse_length`). A window of some layers is refused here.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.errors import ShapeError, shown

Config = Mapping[str, Any]

WINDOW_KEYS = ("sliding_window", "use_sliding_window", "max_window_layers", "layer_types")
"""Keys of a config that say something about windows."""

PLAIN_WINDOW = 4096
"""The window where a file leaves it out."""
PLAIN_FIRST = 28
"""The first layer with a window where a file leaves it out."""


class WindowRule(NamedTuple):
    """How one family spells a window."""

    read: Callable[[Config], int | None]
    write: Callable[[int | None], dict[str, Any]]


def _read_none(config: Config) -> int | None:
    stated = [key for key in WINDOW_KEYS if config.get(key)]
    if stated:
        raise ShapeError(
            f"{', '.join(stated)} is stated, but model_type {shown(config.get('model_type'))} "
            "has no sliding window",
            hint="remove it, or correct model_type",
        )
    return None


def _read_all(config: Config) -> int | None:
    window: int | None = config.get("sliding_window", PLAIN_WINDOW)
    own = "full_attention" if window is None else "sliding_attention"
    return _agreed(window, _types(config) or [own])


def _read_switched(config: Config) -> int | None:
    if not config.get("use_sliding_window"):
        return _agreed(None, _types(config))
    window: int | None = config.get("sliding_window", PLAIN_WINDOW)
    first = config.get("max_window_layers", PLAIN_FIRST)
    if not isinstance(first, int):
        raise ShapeError(f"max_window_layers is {shown(first)}", hint="give an integer")
    implied = [
        "sliding_attention" if window is not None and layer >= first else "full_attention"
        for layer in range(config["num_hidden_layers"])
    ]
    types = _types(config) or implied
    return _agreed(window if "sliding_attention" in types else None, types)


def _types(config: Config) -> list[Any]:
    types = config.get("layer_types") or []
    if not isinstance(types, list):
        raise ShapeError(f"layer_types is {shown(types)}", hint="give a list with a name per layer")
    return types


def _agreed(window: int | None, types: list[Any]) -> int | None:
    """The window, if every layer attends in the one way that goes with it."""
    wanted = "full_attention" if window is None else "sliding_attention"
    other = [(layer, kind) for layer, kind in enumerate(types) if kind != wanted]
    if other:
        layer, kind = other[0]
        raise ShapeError(
            f"layer {layer} has {shown(kind)}, but with sliding_window {window} all layers would "
            f"have {wanted!r}: windows of some layers are not supported",
            hint="only models whose layers all have the same attention can be loaded",
        )
    return window


def _write_switched(window: int | None) -> dict[str, Any]:
    if window is None:
        return {"use_sliding_window": False}
    return {"use_sliding_window": True, "sliding_window": window, "max_window_layers": 0}


NO_WINDOW = WindowRule(_read_none, lambda _: {})
WINDOW_OF_ALL = WindowRule(_read_all, lambda window: {"sliding_window": window})
SWITCHED_WINDOW = WindowRule(_read_switched, _write_switched)

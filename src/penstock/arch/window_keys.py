"""Sliding windows as `config.json` states them, which each family does in its own way.

    llama, olmo2     have none
    mistral, mixtral, phi3
                     "sliding_window" is the window of every layer, null for none
    qwen             "use_sliding_window" switches it on, from layer "max_window_layers" upwards
    qwen3_moe        the same, in all layers
    gemma2, gemma3   every second, or every sixth layer has none

Where "layer_types" stands in the file, it names the attention of every layer.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.arch.config import ModelConfig
from penstock.errors import ShapeError, shown

Config = Mapping[str, Any]

WINDOW_KEYS = ("sliding_window", "use_sliding_window", "max_window_layers", "layer_types")
"""Keys of a config that say something about windows."""
PATTERN_KEYS = ("sliding_window_pattern", "sliding_window_size", "_sliding_window_pattern")
"""Those that only files of Gemma have."""

FULL, SLIDING = "full_attention", "sliding_attention"
PLAIN_WINDOW = 4096
"""The window where a file leaves it out."""
PLAIN_FIRST = 28
"""The first layer with a window where a file leaves it out."""


class WindowFields(NamedTuple):
    """The fields of a model that windows are."""

    window: int | None
    window_pattern: tuple[bool, ...] = ()


class WindowRule(NamedTuple):
    """How one family spells a window."""

    read: Callable[[Config], WindowFields]
    write: Callable[[ModelConfig], dict[str, Any]]


def _read_none(config: Config) -> WindowFields:
    stated = [key for key in (*WINDOW_KEYS, *PATTERN_KEYS) if config.get(key)]
    if stated:
        raise ShapeError(
            f"{', '.join(stated)} is stated, but model_type {shown(config.get('model_type'))} "
            "has no sliding window",
            hint="remove it, or correct model_type",
        )
    return WindowFields(None)


def window_of_all(unstated: int | None) -> WindowRule:
    """A window that all layers have; `unstated` is the one where a file leaves it out."""

    def read(config: Config) -> WindowFields:
        window: int | None = config.get("sliding_window", unstated)
        own = FULL if window is None else SLIDING
        types = _types(config) or [own]
        other = next((layer for layer, kind in enumerate(types) if kind != own), None)
        if other is not None:
            raise ShapeError(
                f"layer {other} has {shown(types[other])}, but with sliding_window {window} all "
                f"layers of model_type {shown(config.get('model_type'))} have {own!r}",
                hint="correct layer_types or sliding_window",
            )
        return WindowFields(window)

    def write(config: ModelConfig) -> dict[str, Any]:
        if config.window_pattern:
            raise ShapeError(
                "window_pattern gives windows to some layers, but the family of the model has "
                "them in all layers or in none",
                hint="leave out window_pattern",
            )
        return {"sliding_window": config.window}

    return WindowRule(read, write)


def _read_switched(config: Config) -> WindowFields:
    layers = config["num_hidden_layers"]
    if not config.get("use_sliding_window"):
        return _of_types(None, _types(config), layers)
    window: int | None = config.get("sliding_window", PLAIN_WINDOW)
    first = config.get("max_window_layers", PLAIN_FIRST)
    if not isinstance(first, int):
        raise ShapeError(f"max_window_layers is {shown(first)}", hint="give an integer")
    implied = [SLIDING if layer >= first else FULL for layer in range(layers)]
    return _of_types(window, _types(config) or implied, layers)


def _write_switched(config: ModelConfig) -> dict[str, Any]:
    if config.window is None:
        return {"use_sliding_window": False}
    switched = {"use_sliding_window": True, "sliding_window": config.window}
    if not config.window_pattern:
        return {**switched, "max_window_layers": 0}
    return {**switched, "layer_types": layer_types(config)}


def window_pattern(period: int) -> WindowRule:
    """A window that all layers have but every so-manieth."""

    def read(config: Config) -> WindowFields:
        window: int | None = config.get("sliding_window", PLAIN_WINDOW)
        every = _period(config, period)
        layers = config["num_hidden_layers"]
        implied = [SLIDING if (layer + 1) % every else FULL for layer in range(layers)]
        return _of_types(window, _types(config) or implied, layers)

    def write(config: ModelConfig) -> dict[str, Any]:
        return {"sliding_window": config.window, "layer_types": layer_types(config)}

    return WindowRule(read, write)


def _period(config: Config, plain: int) -> int:
    """How often a layer has no window, where a file says it; layer_types say more."""
    found = config.get("sliding_window_pattern", plain)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ShapeError(
            f"sliding_window_pattern is {shown(found)}", hint="give an integer above 0"
        )
    return found


def layer_types(config: ModelConfig) -> list[str]:
    """The attention of every layer, as files name it."""
    return [SLIDING if config.has_window(layer) else FULL for layer in range(config.layers)]


def _types(config: Config) -> list[Any]:
    types = config.get("layer_types") or []
    if not isinstance(types, list):
        raise ShapeError(f"layer_types is {shown(types)}", hint="give a list with a name per layer")
    return types


def _of_types(window: int | None, types: Sequence[Any], layers: int) -> WindowFields:
    """The window and the shortest pattern that gives each layer its attention."""
    strange = next((each for each in enumerate(types) if each[1] not in (FULL, SLIDING)), None)
    if strange is not None:
        raise ShapeError(
            f"layer {strange[0]} has {shown(strange[1])}, which is not supported",
            hint=f"layers may have {FULL!r} or {SLIDING!r}",
        )
    if types and len(types) != layers:
        raise ShapeError(
            f"layer_types has {len(types)} names, but num_hidden_layers is {layers}",
            hint="give a name per layer",
        )
    if SLIDING in types and window is None:
        raise ShapeError(
            f"layer {types.index(SLIDING)} has {SLIDING!r}, but the model has no sliding window",
            hint="state sliding_window, or correct layer_types",
        )
    sliding = tuple(kind == SLIDING for kind in types)
    if not any(sliding):
        return WindowFields(None)
    return WindowFields(window, () if all(sliding) else shortest_period(sliding))


def shortest_period(pattern: tuple[bool, ...]) -> tuple[bool, ...]:
    """The beginning of a pattern which gives all of it when it is repeated.

    >>> shortest_period((True, False, True, False, True))
    (True, False)
    """
    lengths = range(1, len(pattern) + 1)
    return next(
        pattern[:size]
        for size in lengths
        if all(each == pattern[at % size] for at, each in enumerate(pattern))
    )


def _read_all_when_switched(config: Config) -> WindowFields:
    """A window of all layers, where it is switched on."""
    switched = bool(config.get("use_sliding_window"))
    return WindowFields(config.get("sliding_window", PLAIN_WINDOW) if switched else None)


def _write_all_when_switched(config: ModelConfig) -> dict[str, Any]:
    if config.window is None:
        return {"use_sliding_window": False}
    return {"use_sliding_window": True, **window_of_all(None).write(config)}


NO_WINDOW = WindowRule(_read_none, lambda _: {})
SWITCHED_WINDOW = WindowRule(_read_switched, _write_switched)
WINDOW_WHEN_SWITCHED = WindowRule(_read_all_when_switched, _write_all_when_switched)

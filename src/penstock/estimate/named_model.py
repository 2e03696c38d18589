"""A model as a command line names it."""

from functools import lru_cache
from pathlib import Path

from penstock.arch.config import ModelConfig
from penstock.arch.families import from_huggingface
from penstock.arch.presets import MODELS, model
from penstock.errors import ShapeError, shown
from penstock.files.json_object import read_object

CONFIG_IN_FOLDER = "config.json"
_HINT = "give a preset's name, or the config.json of a model"


@lru_cache(maxsize=64)
def named_model(text: str) -> ModelConfig:
    """A preset, or the model that a `config.json` describes, also one that lies in a folder.

    >>> named_model("tiny").layers
    4
    """
    if text in MODELS:
        return model(text)
    inside = Path(text) / CONFIG_IN_FOLDER
    if text.endswith(".json") or _is_file(inside):
        return _described(inside if _is_file(inside) else Path(text))
    if "/" in text or "\\" in text:
        raise ShapeError(
            f"{shown(text, 300)} is not a folder with a {CONFIG_IN_FOLDER}", hint=_HINT
        )
    return model(text)


def _described(path: Path) -> ModelConfig:
    stated = read_object(path, _HINT)
    try:
        return from_huggingface(stated)
    except ShapeError as error:  # which of several files it is about
        raise ShapeError(f"{path}: {error.message}", hint=error.hint) from None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False

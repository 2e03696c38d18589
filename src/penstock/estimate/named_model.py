"""A model as a command line names it."""

from functools import lru_cache
from pathlib import Path

from penstock.arch.config import ModelConfig
from penstock.arch.families import from_huggingface
from penstock.arch.presets import model
from penstock.files.json_object import read_object


@lru_cache(maxsize=64)
def named_model(text: str) -> ModelConfig:
    """A preset, or the model that a `config.json` describes.

    >>> named_model("tiny").layers
    4
    """
    if not text.endswith(".json"):
        return model(text)
    hint = "give a preset's name, or the config.json of a model"
    return from_huggingface(read_object(Path(text), hint))

"""Which model is trained: a published size by name, sizes of one's own, or a Hugging Face folder.

The keys of the section are `preset`, `huggingface` and every number of the model itself. With a
preset, the numbers given replace its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.arch.config import MODELS, ModelConfig, model
from penstock.errors import ShapeError
from penstock.train.config.keys import Key, keys_of
from penstock.train.config.kinds import Choice

DERIVED = ("element_bytes",)
"""Fields of a model that are no keys: bytes of an activation follow from the run's dtype."""
FOLDER = "huggingface"
DEFAULT_PRESET = "tiny"
PRESET = Key(
    "preset",
    Choice(tuple(MODELS)),
    None,
    "A model by name; numbers given beside it replace its own. A section without keys is `tiny`.",
)
"""The key that stands for numbers, and is gone once they are known."""


@dataclass(frozen=True)
class ModelSettings:
    """The model: a preset, sizes of your own, or a Hugging Face folder with initial weights."""

    huggingface: str = ""
    """Folder with `config.json` and safetensors to start from; it has all the numbers."""
    config: ModelConfig | None = MODELS[DEFAULT_PRESET]
    """The model's numbers; None where the folder has them."""

    def __post_init__(self) -> None:
        if bool(self.huggingface) == (self.config is not None):
            raise ShapeError(
                f"huggingface is {self.huggingface!r} and config is {self.config}",
                hint="give either a folder, which has the model's numbers, or the numbers",
            )

    @classmethod
    def keys(cls) -> tuple[Key, ...]:
        """Keys of the section: where the model comes from, and its numbers, none of them needed."""
        (folder,) = (key for key in keys_of(cls) if key.name == FOLDER)
        return (PRESET, folder, *(key._replace(default=None) for key in number_keys()))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "ModelSettings":
        """The settings that these keys say."""
        preset, folder = values.get(PRESET.name, ""), values.get(FOLDER, "")
        numbers = {key.name: values[key.name] for key in number_keys() if key.name in values}
        if folder and (preset or numbers):
            others = [PRESET.name] * bool(preset) + [*numbers]
            raise ShapeError(
                f"{FOLDER} is given, and so is {', '.join(others)}",
                hint="leave the others out: the folder's config.json has every number",
            )
        if folder:
            return cls(folder, None)
        if preset or not numbers:
            return cls(config=replace(model(preset or DEFAULT_PRESET), **numbers))
        return cls(config=_own(numbers))

    def values(self) -> dict[str, Any]:
        """Keys that make these settings: the folder or every number, whichever preset it was."""
        if self.config is None:
            return {FOLDER: self.huggingface}
        return {key.name: getattr(self.config, key.name) for key in number_keys()}


def number_keys() -> tuple[Key, ...]:
    """Keys of the numbers themselves."""
    return tuple(key for key in keys_of(ModelConfig) if key.name not in DERIVED)


def _own(numbers: Mapping[str, Any]) -> ModelConfig:
    missing = [key.name for key in number_keys() if key.needed and key.name not in numbers]
    if missing:
        raise ShapeError(
            f"the model has no {', '.join(missing)}",
            hint=f"give every number of it, or a preset that has them, such as {DEFAULT_PRESET!r}",
        )
    return ModelConfig(**numbers)

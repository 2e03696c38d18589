"""Which model is trained: a published size by name, sizes of one's own, or a Hugging Face folder.

The keys of the section are `preset`, `huggingface` and every number of the model itself. With a
preset, the numbers given replace its own; once they are known, the preset is gone.
"""

from dataclasses import MISSING, fields, is_dataclass, replace
from types import GenericAlias, UnionType
from typing import Annotated, Any, Literal, Self, get_args, get_type_hints

from pydantic import Field, ModelWrapValidatorHandler, TypeAdapter, create_model, model_validator

from penstock.arch.config import ModelConfig
from penstock.arch.presets import MODELS, model
from penstock.errors import ShapeError
from penstock.train.config.fields import Count, FromTable, Positive, Section, fit_value

DERIVED = ("element_bytes", "lora")
"""Fields of a model that are no keys: bytes of an activation follow from the run's dtype, adapters
have a section of their own."""
DEFAULT_PRESET = "tiny"

MODEL_NUMBERS = tuple(field for field in fields(ModelConfig) if field.name not in DERIVED)


class _Source(Section):
    preset: Literal[tuple(MODELS)] | None = None  # type: ignore[valid-type]
    """A model by name; other keys of the section replace its numbers. An empty section is
    `tiny`."""
    huggingface: str = ""
    """Folder with `config.json` and safetensors to start from; it defines all the numbers."""


def _number_keys() -> dict[str, Any]:
    """Keys of the numbers themselves, none of them needed."""
    hints = get_type_hints(ModelConfig)
    described = TypeAdapter(list[ModelConfig], config=Section.model_config).json_schema()
    texts = described["$defs"][ModelConfig.__name__]["properties"]
    return {
        number.name: (
            _key_type(hints[number.name]) | None,
            Field(None, description=texts[number.name]["description"]),
        )
        for number in MODEL_NUMBERS
    }


def _key_type(hint: Any) -> Any:
    """The type of a key: numbers of a model are above 0, a record is a table."""
    if isinstance(hint, UnionType):
        hint = next(inner for inner in get_args(hint) if inner is not type(None))
    if is_dataclass(hint):
        return Annotated[hint, FromTable()]
    if get_args(hint) and is_dataclass(get_args(hint)[0]):
        return GenericAlias(tuple, (_key_type(get_args(hint)[0]), ...))
    return {int: Count, float: Positive}.get(hint, hint)


class ModelSettings(create_model("_Keys", __base__=_Source, **_number_keys())):  # type: ignore[misc]
    """The model: a preset, sizes of your own, or a Hugging Face folder with initial weights."""

    @model_validator(mode="wrap")
    @classmethod
    def _resolve(cls, given: Any, make: ModelWrapValidatorHandler[Self]) -> Self:
        """Replace a preset by its numbers, so that the saved run does not depend on it."""
        return make(fit_value(make(given), _resolved))

    @property
    def config(self) -> ModelConfig | None:
        """The model's numbers; None where the folder has them."""
        return None if self.huggingface else ModelConfig(**_given(self))


def _given(keys: Any) -> dict[str, Any]:
    """The numbers that are not left out."""
    values = {number.name: getattr(keys, number.name) for number in MODEL_NUMBERS}
    return {name: value for name, value in values.items() if value is not None}


def _resolved(keys: Any) -> dict[str, Any]:
    """Keys that say the same without a preset: the folder, or every number."""
    given = _given(keys)
    if keys.huggingface and (keys.preset or given):
        others = ["preset"] * bool(keys.preset) + [*given]
        raise ShapeError(
            f"huggingface is given, and so is {', '.join(others)}",
            hint="leave the others out: the folder's config.json has every number",
        )
    if keys.huggingface:
        return {"huggingface": keys.huggingface}
    if keys.preset or not given:
        return _given(replace(model(keys.preset or DEFAULT_PRESET), **given))
    needed = [number.name for number in MODEL_NUMBERS if number.default is MISSING]
    if missing := [name for name in needed if name not in given]:
        raise ShapeError(
            f"the model has no {', '.join(missing)}",
            hint=f"give every number of it, or a preset that has them, such as {DEFAULT_PRESET!r}",
        )
    return _given(ModelConfig(**given))

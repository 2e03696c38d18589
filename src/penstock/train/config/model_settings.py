"""Which model is trained: a published size by name, sizes of one's own, or a Hugging Face folder.

The keys of the section are `preset`, `huggingface` and every number of the model itself. With a
preset, the numbers given replace its own.
"""

from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import Field, GetCoreSchemaHandler, TypeAdapter, create_model
from pydantic_core import CoreSchema, core_schema

from penstock.arch.config import MODELS, ModelConfig, model
from penstock.errors import ShapeError
from penstock.train.config.fields import Count, FromTable, Positive, Section, fitting

DERIVED = ("element_bytes",)
"""Fields of a model that are no keys: bytes of an activation follow from the run's dtype."""
DEFAULT_PRESET = "tiny"

NUMBERS = tuple(field for field in fields(ModelConfig) if field.name not in DERIVED)


class _Source(Section):
    """The model: a preset, sizes of your own, or a Hugging Face folder with initial weights."""

    preset: Literal[tuple(MODELS)] | None = None  # type: ignore[valid-type]
    """A model by name; numbers given beside it replace its own. A section without keys is
    `tiny`."""
    huggingface: str = ""
    """Folder with `config.json` and safetensors to start from; it has all the numbers."""


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
        for number in NUMBERS
    }


def _key_type(hint: Any) -> Any:
    """The type of a key: numbers of a model are above 0, a record is a table."""
    if isinstance(hint, UnionType):
        hint = next(inner for inner in get_args(hint) if inner is not type(None))
    if is_dataclass(hint):
        return Annotated[hint, FromTable()]
    return {int: Count, float: Positive}.get(hint, hint)


ModelKeys = create_model("ModelKeys", __base__=_Source, __doc__=_Source.__doc__, **_number_keys())
"""The keys as they stand in a file."""


@dataclass(frozen=True)
class ModelSettings:
    """The model that these keys say: its numbers, or the folder that has them."""

    huggingface: str = ""
    config: ModelConfig | None = MODELS[DEFAULT_PRESET]
    """The model's numbers; None where the folder has them."""

    def __post_init__(self) -> None:
        if bool(self.huggingface) == (self.config is not None):
            raise ShapeError(
                f"huggingface is {self.huggingface!r} and config is {self.config}",
                hint="give either a folder, which has the model's numbers, or the numbers",
            )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read from the keys, written as the keys that make the same settings."""

        def read(value: Any, keys: core_schema.ValidatorFunctionWrapHandler) -> Any:
            if isinstance(value, cls):
                return value
            return fitting(keys(value), _resolved)

        return core_schema.no_info_wrap_validator_function(
            read,
            handler.generate_schema(ModelKeys),
            serialization=core_schema.plain_serializer_function_ser_schema(_keys),
        )


def _resolved(keys: _Source) -> ModelSettings:
    """The settings that the keys of a file say."""
    given = {key.name: getattr(keys, key.name) for key in NUMBERS}
    numbers = {name: value for name, value in given.items() if value is not None}
    if keys.huggingface and (keys.preset or numbers):
        others = ["preset"] * bool(keys.preset) + [*numbers]
        raise ShapeError(
            f"huggingface is given, and so is {', '.join(others)}",
            hint="leave the others out: the folder's config.json has every number",
        )
    if keys.huggingface:
        return ModelSettings(keys.huggingface, None)
    if keys.preset or not numbers:
        return ModelSettings(config=replace(model(keys.preset or DEFAULT_PRESET), **numbers))
    return ModelSettings(config=_own(numbers))


def _own(numbers: dict[str, Any]) -> ModelConfig:
    needed = [number.name for number in NUMBERS if number.default is MISSING]
    if missing := [name for name in needed if name not in numbers]:
        raise ShapeError(
            f"the model has no {', '.join(missing)}",
            hint=f"give every number of it, or a preset that has them, such as {DEFAULT_PRESET!r}",
        )
    return ModelConfig(**numbers)


def _keys(settings: ModelSettings) -> dict[str, Any]:
    """Keys that make these settings: the folder or every number, whichever preset it was."""
    if settings.config is None:
        return {"huggingface": settings.huggingface}
    return _without_none({n: v for n, v in asdict(settings.config).items() if n not in DERIVED})


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    """A table as TOML can hold it."""
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in table.items()
        if value is not None
    }

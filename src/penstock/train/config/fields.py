"""What sections of the configuration are made of: strict types, ranges, and tables of lower layers.

A section is a pydantic model. It takes a value as it is or not at all: "7" is no number, 2.0 is no
count, an unknown key is refused. The text below a field is its meaning on the reference page.
"""

from collections.abc import Callable
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from penstock.errors import ShapeError

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Factor = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A table of the file; each field is a key."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="after")
    def _refuse_nul(self) -> Self:
        """No path, name or token has one, and a system that is given one knows no such file."""
        for key, value in self:
            texts = value if isinstance(value, tuple) else (value,)
            if any(isinstance(text, str) and "\0" in text for text in texts):
                raise MisfitError(f"{key} has a NUL character in it", hint="leave it out")
        return self


class MisfitError(ShapeError, ValueError):
    """Values that do not fit together; as a ValueError, it is placed by pydantic."""


class FromTable:
    """Beside a dataclass of a lower layer, which knows nothing of pydantic: it is read from a table
    of the file, its fields are the keys, and what it refuses is a misfit."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler(source)
        # The table itself is no instance of the dataclass; its values stay as strict as elsewhere.
        table: Any = handler.resolve_ref_schema(schema)
        table["strict"] = False
        return core_schema.no_info_wrap_validator_function(fit_value, schema)


def fit_value(value: Any, make: Callable[[Any], Any]) -> Any:
    """What is made of a value, with a refusal as a misfit."""
    try:
        return make(value)
    except ShapeError as error:
        raise MisfitError(error.message, hint=error.hint) from None

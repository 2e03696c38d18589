"""Which values a key takes, as what, in which words, and what its schema says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError, create_model

from loops import each
from penstock.errors import ShapeError
from penstock.train.config.fields import (
    Count,
    Factor,
    FromTable,
    MisfitError,
    NotNegative,
    Positive,
    Section,
    Share,
)
from penstock.train.config.load import prepare
from penstock.train.config.schema import schema_of, type_words


@dataclass(frozen=True)
class Inner:
    """A record of a lower layer."""

    a: int
    """How many."""
    b: str = "x"
    """A text below
    the field."""
    c: float | None = None

    def __post_init__(self) -> None:
        if self.a == 13:
            raise ShapeError("a is 13", hint="give another")


Table = Annotated[Inner, FromTable()]


def one(hint: Any) -> type[Section]:
    """A section with one key of this type."""
    return create_model("One", __base__=Section, key=(hint, Field(description="It.")))


def takes(hint: Any, value: Any) -> bool:
    try:
        one(hint).model_validate({"key": prepare(value)})
    except ValidationError:
        return False
    return True


@pytest.mark.long
@each(
    ("hint", "good", "bad"),
    [
        (int, [0, -3, 2**63 - 1], [True, 1.0, "1", None, 2**63, [1]]),
        (float, [0, 1.5, -2], [True, "1", float("nan"), float("inf"), 10**400, 2**63, None]),
        (bool, [True, False], [0, 1, "true", None]),
        (str, ["", "a", "\u00e9"], [1, None, ["a"], "\udcff"]),
        (Literal["a", "b"], ["a"], ["c", "A", 1, ["a"]]),
        (Count, [1], [0, -1, True]),
        (Positive, [1e-9, 1], [0, 0.0, -1]),
        (NotNegative, [0, 2.5], [-1]),
        (Share, [0, 0.5], [1, -0.1]),
        (Factor, [0, 1], [1.1]),
        (tuple[int, ...], [[], [1, 2], (3,)], [1, [1.5], "ab", {1: 2}]),
        (tuple[float, float], [[1, 2]], [[1], [1, 2, 3], []]),
        (Mapping[str, int], [{}, {"a": 1}], [[], {"a": "b"}, {1: 1}]),
        (int | str, [1, "a"], [1.5, None]),
        (Table, [{"a": 1}, {"a": 1, "b": "y"}, Inner(1)], [{}, {"a": "1"}, {"a": 1, "d": 2}, 3]),
        (Table, [{"a": 12}], [{"a": 13}, {"a": 1.0}, {"a": 1, "c": float("inf")}]),
    ],
)
def test_a_key_tells_fitting_values_from_others(hint: Any, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not takes(hint, value)] == []
    assert [value for value in bad if takes(hint, value)] == []


@pytest.mark.parametrize(
    ("hint", "value", "taken"),
    [
        (float, 3, 3.0),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Literal["a"] | tuple[float, ...], [1], (1.0,)),
        (Mapping[str, float], {"a": 1}, {"a": 1.0}),
        (Mapping[str, int | float | str], {"a": 1, "b": 1.0}, {"a": 1, "b": 1.0}),
        (Table, {"a": 1, "c": 2}, Inner(1, "x", 2.0)),
    ],
)
def test_a_value_is_taken_as_the_field_holds_it(hint: Any, value: Any, taken: Any) -> None:
    found: Any = one(hint).model_validate({"key": prepare(value)})
    assert (found.key, type(found.key)) == (taken, type(taken))
    assert repr(found.key) == repr(taken)


def test_what_a_record_refuses_is_a_misfit_with_its_hint() -> None:
    with pytest.raises(ValidationError) as caught:
        one(Table).model_validate({"key": {"a": 13}})
    (detail,) = caught.value.errors()
    misfit = detail["ctx"]["error"]
    assert isinstance(misfit, MisfitError)
    assert (detail["loc"], misfit.message, misfit.hint) == (("key",), "a is 13", "give another")


def test_settings_made_in_code_are_refused_too_and_do_not_change() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        one(Count)(key=0)
    with pytest.raises(ValidationError, match="frozen"):
        one(Count)(key=1).key = 2


def key_schema(hint: Any) -> dict[str, Any]:
    found = schema_of(one(hint))["properties"]["key"]
    assert found.pop("description") == "It."
    return dict(found)


@pytest.mark.long
@each(
    ("hint", "said"),
    [
        (Count, "an integer of 1 or more"),
        (Share, "a number of 0 or more and below 1"),
        (Factor, "a number of 0 or more and at most 1"),
        (Positive, "a number above 0"),
        (Literal["a", "b", "c"], '"a", "b" or "c"'),
        (Literal["a"], '"a"'),
        (bool, "true or false"),
        (tuple[float, float], "a list of 2, each item a number"),
        (tuple[Count, ...] | Literal["a"], 'a list, each item an integer of 1 or more or "a"'),
        (Mapping[str, int | str], "a table, each value an integer or a string"),
        (Table, "a table with a, b, c"),
    ],
)
def test_a_key_says_what_it_wants(hint: Any, said: str) -> None:
    assert type_words(key_schema(hint)) == said


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int, {"type": "integer"}),
        (bool, {"type": "boolean"}),
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
        (Share, {"type": "number", "minimum": 0, "exclusiveMaximum": 1}),
        (Positive | None, {"type": "number", "exclusiveMinimum": 0}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    ],
)
def test_a_key_writes_itself_as_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert key_schema(hint) == schema


def test_a_record_writes_its_fields_with_the_texts_below_them() -> None:
    assert key_schema(Table) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "How many."},
            "b": {"type": "string", "default": "x", "description": "A text below the field."},
            "c": {"type": "number"},
        },
        "required": ["a"],
        "additionalProperties": False,
    }

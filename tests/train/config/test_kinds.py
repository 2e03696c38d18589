"""Which values a type takes, in what words, and what its schema says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from penstock.errors import ShapeError
from penstock.train.config.keys import Key, keys_of, kind_of, refuse_wrong
from penstock.train.config.kinds import Range


@dataclass(frozen=True)
class Inner:
    a: int
    """How many."""
    b: str = "x"
    """A text below
    the field."""
    c: float | None = None

    def __post_init__(self) -> None:
        refuse_wrong(self)


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, [0, -3, 2**63 - 1], [True, 1.0, "1", None, 2**63, [1]]),
        (float, [0, 1.5, -2], [True, "1", float("nan"), float("inf"), 10**400, None]),
        (bool, [True, False], [0, 1, "true", None]),
        (str, ["", "a"], [1, None, ["a"], "\udcff"]),
        (Literal["a", "b"], ["a"], ["c", "A", 1, ["a"]]),
        (Annotated[int, Range(least=1)], [1], [0, -1, True]),
        (Annotated[float, Range(above=0)], [1e-9, 1], [0, 0.0, -1]),
        (Annotated[float, Range(least=0, below=1)], [0, 0.5], [1, -0.1]),
        (Annotated[float, Range(least=0, most=1)], [0, 1], [1.1]),
        (tuple[int, ...], [[], [1, 2], (3,)], [1, [1.5], "ab", {1: 2}]),
        (tuple[float, float], [[1, 2]], [[1], [1, 2, 3], []]),
        (Mapping[str, int], [{}, {"a": 1}], [[], {"a": "b"}, {1: 1}, {"\udcff": 1}]),
        (int | str, [1, "a"], [1.5, None]),
        (int | None, [1], [None, "a"]),
        (Inner, [{"a": 1}, {"a": 1, "b": "y"}, Inner(1)], [{}, {"a": "1"}, {"a": 1, "d": 2}, 3]),
    ],
)
def test_a_kind_tells_fitting_values_from_others(
    hint: Any, good: list[Any], bad: list[Any]
) -> None:
    kind = kind_of(hint)
    assert [value for value in good if not kind.accepts(value)] == []
    assert [value for value in bad if kind.accepts(value)] == []


@pytest.mark.parametrize(
    ("hint", "value", "taken"),
    [
        (float, 3, 3.0),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Literal["a"] | tuple[float, ...], [1], (1.0,)),
        (Mapping[str, float], {"a": 1}, {"a": 1.0}),
        (Inner, {"a": 1, "c": 2}, Inner(1, "x", 2.0)),
    ],
)
def test_a_value_is_taken_as_the_field_holds_it(hint: Any, value: Any, taken: Any) -> None:
    found = kind_of(hint).take(value)
    assert (found, type(found)) == (taken, type(taken))
    assert repr(found) == repr(taken)


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Annotated[int, Range(least=1)], "a whole number of 1 or more"),
        (Annotated[float, Range(least=0, below=1)], "a number of 0 or more and below 1"),
        (Literal["a", "b", "c"], '"a", "b" or "c"'),
        (Literal["a"], '"a"'),
        (tuple[float, float], "a list of 2, each item a number"),
        (Inner, "a table with a (a whole number), b (a text), c (a number)"),
    ],
)
def test_a_kind_says_what_it_wants(hint: Any, words: str) -> None:
    assert kind_of(hint).words == words


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int, {"type": "integer"}),
        (bool, {"type": "boolean"}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (
            Annotated[float, Range(above=0, most=2)],
            {"type": "number", "exclusiveMinimum": 0, "maximum": 2},
        ),
        (
            tuple[float, float],
            {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        ),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (
            Inner,
            {
                "type": "object",
                "properties": {
                    "a": {"description": "How many.", "type": "integer"},
                    "b": {
                        "description": "A text below the field.",
                        "type": "string",
                        "default": "x",
                    },
                    "c": {"type": "number"},
                },
                "required": ["a"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_a_kind_writes_itself_as_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert kind_of(hint).schema() == schema


def test_keys_are_the_fields_with_the_texts_below_them() -> None:
    count, text, number = keys_of(Inner)
    assert isinstance(count, Key)
    assert (count.name, count.needed, count.text) == ("a", True, "How many.")
    assert (text.default, text.text) == ("x", "A text below the field.")
    assert (number.default, number.text) == (None, "")


@pytest.mark.parametrize("wrong", [{"a": 1.5}, {"a": 1, "b": None}, {"a": 1, "c": "2"}])
def test_settings_made_in_code_are_refused_too(wrong: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match="is") as caught:
        Inner(**wrong)
    assert caught.value.hint.startswith("give ")

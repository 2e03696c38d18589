from fractions import Fraction

import pytest

from penstock.cli._numbers import amounts, assignments, parse_number
from penstock.errors import ShapeError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", Fraction(2)),
        ("0", Fraction(0)),
        ("0.1", Fraction(1, 10)),
        (".5", Fraction(1, 2)),
        ("3.", Fraction(3)),
        ("1/3", Fraction(1, 3)),
    ],
)
def test_decimals_and_fractions_are_read_exactly(text: str, value: Fraction) -> None:
    assert parse_number("--hop", text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "x", "1e9", "1e999999999", "1/0", "1/", "nan", "inf", "0x10", "1_0", "٣", "1" * 40],
)
def test_anything_else_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ShapeError, match="--hop") as caught:
        parse_number("--hop", text)
    assert caught.value.hint == "write it as 2, 0.25 or 1/3, with at most nine digits in a row"


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ShapeError, match="--times F is -1, but must not be negative"):
        amounts("--times", "F=-1")


def test_a_list_of_amounts_may_have_spaces_and_may_be_empty() -> None:
    assert amounts("--times", "F=1, I = 1/2 ,W=0.25") == {
        "F": Fraction(1),
        "I": Fraction(1, 2),
        "W": Fraction(1, 4),
    }
    assert amounts("--times", "") == {}


@pytest.mark.parametrize("text", ["F", "F=", "=1", ",", "F=1,", "F=1,,W=1"])
def test_what_is_not_key_and_value_is_refused(text: str) -> None:
    with pytest.raises(ShapeError, match="where key=value is wanted"):
        amounts("--times", text)


def test_a_key_stands_once() -> None:
    with pytest.raises(ShapeError, match="--times sets F twice, to 1 and to 2"):
        amounts("--times", "F=1,I=1,F=2")


@pytest.mark.parametrize("value", ["1e999999999", "9" * 61])
def test_a_value_that_would_take_forever_to_read_is_refused_at_once(value: str) -> None:
    with pytest.raises(ShapeError, match="limit"):
        assignments("-o", [f"limit={value}"])

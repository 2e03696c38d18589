"""Numbers are exact where they are short, and rounded in one way where a program printed them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loops import each
from penstock.core.numbers import (
    LARGEST_NUMBER,
    SMALLEST_NUMBER,
    read_bytes,
    read_number,
    read_tokens,
)


@each(
    ("text", "value"),
    [
        ("2", Fraction(2)),
        ("0", Fraction(0)),
        ("0.1", Fraction(1, 10)),
        ("-0.1", Fraction(-1, 10)),
        ("-0.3333333333333333", Fraction(-1, 3)),
        (".5", Fraction(1, 2)),
        ("3.", Fraction(3)),
        ("1/3", Fraction(1, 3)),
        ("123456789.123456789", Fraction(123456789123456789, 10**9)),
        ("1e-3", Fraction(1, 1000)),
        ("1.5E+3", Fraction(1500)),
        ("1e-12", Fraction(1, 10**12)),
        ("0.366412213740458", Fraction(48, 131)),
        ("0.3333333333333333", Fraction(1, 3)),
        ("3.3333333333333335", Fraction(10, 3)),
        ("0.0026041666666666665", Fraction(1, 384)),
        ("0.12345678987654321", Fraction(123456790, 10**9)),
        ("0.00012345678987654321", Fraction(123456790, 10**12)),
    ],
)
def test_numbers_are_read_as_they_are_meant(text: str, value: Fraction) -> None:
    assert read_number(text) == value


@each(
    "text",
    ["", " ", "x", "1e999999999", "1e19", "1e-19", "1/0", "1/", "nan", "inf", "0x10", "1_0", "٣"]
    + ["1" * 40, "--1", "1e", "1.2.3", "1/2/3", "9" * 5000, "1/" + "9" * 5000, "64K", "80GB"],
)
def test_anything_else_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a number|divides by 0|not between"):
        read_number(text)


@given(value=st.floats(1e-17, 1e17))
def test_what_python_prints_is_read_to_nine_digits(value: float) -> None:
    found = read_number(repr(value))
    assert SMALLEST_NUMBER <= found <= LARGEST_NUMBER
    assert abs(found - Fraction(value)) <= Fraction(value) / 10**8


@given(parts=st.integers(1, 1000), whole=st.integers(1, 10**5))
def test_a_simple_fraction_that_went_through_a_float_comes_back(parts: int, whole: int) -> None:
    assert read_number(repr(whole / parts)) == Fraction(whole, parts)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("80GB", 80 * 10**9),
        ("2GiB", 2**31),
        ("1.5 KB", 1500),
        ("12B", 12),
        ("7", 7),
        ("1e3KB", 10**6),
    ],
)
def test_bytes_may_have_a_unit(text: str, value: int) -> None:
    assert read_bytes(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("64K", 65536), ("1M", 2**20), ("0.5K", 512), ("1e4", 10000)],
)
def test_tokens_may_have_a_unit(text: str, value: int) -> None:
    assert read_tokens(text) == value


@pytest.mark.parametrize("text", ["64KB", "1/3", "0.3K", "K", "64k", "1e18K" * 9])
def test_tokens_are_whole(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a number|is not an integer"):
        read_tokens(text)

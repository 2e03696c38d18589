from fractions import Fraction

import pytest

from loops import each
from penstock.cli._numbers import assignments, parse_bytes, parse_number, sizes_of, times_of
from penstock.errors import ShapeError
from penstock.schedules import find


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


@each(
    "text",
    ["", " ", "x", "1e99", "1e999999999", "1/0", "1/", "nan", "inf", "0x10", "1_0", "٣", "1" * 40],
)
def test_anything_else_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ShapeError, match="--hop") as caught:
        parse_number("--hop", text)
    assert caught.value.hint == "write it as 2, 0.25, 1e-3 or 1/3, from 1e-18 to 1e18"


def test_memory_may_have_a_unit_of_bytes_and_times_may_not() -> None:
    assert parse_bytes("--limit", "80GB") == 80 * 10**9
    assert sizes_of("--sizes", "act=2GiB,stash=1") == {"act": 2**31, "stash": 1}
    with pytest.raises(ShapeError, match="--times F is '2GB', which is not a number"):
        times_of("--times", "F=2GB")


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ShapeError, match="--times F is -1, but must not be negative"):
        times_of("--times", "F=-1")


def test_a_list_of_amounts_may_have_spaces_and_may_be_empty() -> None:
    assert times_of("--times", "F=1, I = 1/2 ,W=0.25") == {
        "F": Fraction(1),
        "I": Fraction(1, 2),
        "W": Fraction(1, 4),
    }
    assert times_of("--times", "") == {}


@pytest.mark.parametrize("text", ["F", "F=", "=1", ",", "F=1,", "F=1,,W=1"])
def test_what_is_not_key_and_value_is_refused(text: str) -> None:
    with pytest.raises(ShapeError, match="where key=value is expected"):
        times_of("--times", text)


def test_a_key_stands_once() -> None:
    with pytest.raises(ShapeError, match="--times sets F twice, to 1 and to 2"):
        times_of("--times", "F=1,I=1,F=2")


def test_a_value_without_end_is_refused() -> None:
    with pytest.raises(ShapeError, match="limit"):
        assignments("-o", [f"limit={'9' * 61}"])


@pytest.mark.parametrize("value", ["1e999999999", "1/0", "0x1", "nan"])
def test_options_are_read_as_numbers_are_everywhere(value: str) -> None:
    with pytest.raises(ShapeError, match=r"limit=.* cannot be read"):
        find("v-auto").case(4, 8, None, None, {"limit": value})
    for name, option in (("chunkflow", "groups"), ("sppo", "ratios"), ("po-f", "ratio")):
        with pytest.raises(ShapeError, match="cannot be read"):
            find(name).case(4, 8, None, None, {option: value})


def test_options_may_have_exponents_and_units() -> None:
    case = find("v-auto").case(4, 8, None, None, {"limit": "1e3"})
    assert case.options["limit"] == 1000
    assert find("v-auto").case(4, 8, None, None, {"limit": "4GB"}).options["limit"] == 4 * 10**9

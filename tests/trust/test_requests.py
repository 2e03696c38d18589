"""Requests that no schedule can serve end at once, with a sentence and a way out.

A caller may be a script with a wrong number in it: zero slices, a thousand million microbatches, a
flag where a count belongs. None of that may allocate, loop or leave with a foreign exception.
"""

from itertools import product
from time import perf_counter
from typing import Any

import pytest

from clock import within
from loops import Place, all_cases
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules import build, find, registry

LIMIT_S = 1.0
NAMES = list(registry())
NUMBERS = ("devices", "microbatches", "chunks", "slices")
GOOD = {"devices": 2, "microbatches": 4}


def refusal(name: str, **request: Any) -> ShapeError:
    """The error that a request ends with, if it does so in time."""
    with pytest.raises(ShapeError) as caught, within(LIMIT_S, perf_counter):
        build(name, **{**GOOD, **request})
    return caught.value


def _counts_that_are_none(name: str, case: Place) -> None:
    values: list[Any] = [0, -1, -(10**12), True, False, 2.0, 2.5, "2", "many", [2]]
    for number, value in product(NUMBERS, values):
        with case(number, repr(value)):
            error = refusal(name, **{number: value})
            assert str(value) in error.message
            assert error.hint


def _a_thousand_million_ops(name: str, case: Place) -> None:
    """They are refused before they are made."""
    for number, power in product(("devices", "microbatches"), (9, 18, 300)):
        with case(number, f"10**{power}"):
            error = refusal(name, **{number: 10**power})
            assert error.hint


def _ops_beyond_the_limit(name: str, case: Place) -> None:
    """They are refused whatever makes them many."""
    with case("ops beyond the limit"):
        error = refusal(name, devices=1000, microbatches=100_000)
        assert "ops" in error.message
        assert error.hint


def _options_of_other_schedules(name: str, case: Place) -> None:
    own = {option.name for option in find(name).options}
    others = {option.name for spec in registry().values() for option in spec.options} - own
    for option in sorted(others | {"colour"}):
        with case(option):
            error = refusal(name, options={option: 1})
            assert repr(option) in error.message
            assert error.hint


def _option_values_without_sense(name: str, case: Place) -> None:
    values: list[Any] = ["", "much", "1/0", "nan", -3, True, [1]]
    for option, value in product(find(name).options, values):
        with case(option.name, repr(value)):
            error = refusal(name, options={option.name: value})
            assert option.name in error.message
            assert error.hint


def _options_that_count(name: str, case: Place) -> None:
    """None, too many and parts are refused."""
    counts = [option.name for option in find(name).options if option.parse is int]
    for option, value in product(counts, (0, 10**9, 2.5)):
        with case(option, value):
            error = refusal(name, options={option: value})
            assert option in error.message
            assert error.hint


def _slices_where_there_are_none(name: str, case: Place) -> None:
    if not find(name).sliced:
        with case("slices"):
            error = refusal(name, slices=2)
            assert "slices" in error.message
            assert "-k" in error.hint


def _another_number_of_chunks(name: str, case: Place) -> None:
    chunks = find(name).chunks
    if chunks is not None:
        with case("chunks"):
            error = refusal(name, chunks=chunks + 1)
            assert str(chunks + 1) in error.message
            assert f"-v {chunks}" in error.hint


MISTAKES = (
    _counts_that_are_none,
    _a_thousand_million_ops,
    _ops_beyond_the_limit,
    _options_of_other_schedules,
    _option_values_without_sense,
    _options_that_count,
    _slices_where_there_are_none,
    _another_number_of_chunks,
)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_schedule_cannot_serve_is_refused(name: str) -> None:
    with all_cases() as case:
        for refuse_each in MISTAKES:
            refuse_each(name, case)


@pytest.mark.parametrize("name", ["", "1F1B", "seq1fib", "no such schedule", "gpipe ", "\x00"])
def test_an_unknown_name_is_answered_with_a_known_one(name: str) -> None:
    error = refusal(name)
    assert repr(name) in error.message
    assert any(known in error.hint for known in NAMES)


@pytest.mark.parametrize(
    "fields",
    [
        {"devices": 0, "stages": 1, "slices": (1,)},
        {"devices": 1, "stages": 0, "slices": (1,)},
        {"devices": 1, "stages": 1, "slices": ()},
        {"devices": 1, "stages": 1, "slices": (0,)},
        {"devices": 1, "stages": 1, "slices": (1, -1)},
        {"devices": True, "stages": 1, "slices": (1,)},
        {"devices": 4, "stages": 2, "slices": (1,)},
        {"devices": 1, "stages": 1, "slices": (10**9,)},
        {"devices": 10**9, "stages": 10**9, "slices": (1,)},
        {"devices": 1, "stages": 2, "slices": (1,), "weightless": frozenset({2})},
        {"devices": 1, "stages": 2, "slices": (1,), "skips": ((1, 0),)},
        {"devices": 1, "stages": 2, "slices": (1,), "copies": 0},
        {"devices": 1, "stages": 2, "slices": (1,), "loss": "X"},
        {"devices": 1, "stages": 2, "slices": (1,), "stage_share": (1,)},
        {"devices": 1, "stages": 2, "slices": (1,), "boundary_bytes": (1, 1)},
    ],
)
def test_an_impossible_shape_is_refused_with_a_hint(fields: dict[str, Any]) -> None:
    with pytest.raises(ShapeError) as caught:
        Shape(**fields)
    assert caught.value.hint

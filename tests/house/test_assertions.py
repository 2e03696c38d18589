"""Every test can fail."""

from pathlib import Path

import pytest

from house.assertions import hollow
from house.conftest import Plant
from house.source import none_of

TEST = "tests/core/test_ops.py"


def test_every_test_can_fail(house: Path) -> None:
    none_of(hollow(house))


@pytest.mark.parametrize(
    "condition", ["True", "x == 1 or True", "1", "'text'", "(x == 1, 'message')", "x or (y or 1)"]
)
def test_an_assertion_that_always_holds_is_found(plant: Plant, condition: str) -> None:
    root = plant({TEST: f"def test_it():\n    assert {condition}\n"})
    assert hollow(root) == ["tests/core/test_ops.py:2: holds whatever happens"]


@pytest.mark.parametrize("body", ["pass", "x = 1", '"""Says much."""'])
def test_a_test_without_a_check_is_found(plant: Plant, body: str) -> None:
    assert hollow(plant({TEST: f"def test_it():\n    {body}\n"})) == [
        "tests/core/test_ops.py:1: test_it checks nothing"
    ]


@pytest.mark.parametrize("body", ["assert x == 1", "assert x or y", "none_of(rule(house))"])
def test_a_test_that_checks_something_is_fine(plant: Plant, body: str) -> None:
    assert hollow(plant({TEST: f"def test_it():\n    {body}\n"})) == []

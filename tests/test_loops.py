"""A loop over cases hides no failure and no empty list."""

from collections.abc import Iterator
from inspect import signature

import pytest

from loops import all_cases, each, each_case, looped


def refused(word: str) -> None:
    """Fails for words other than `two`, in the two ways a test can fail."""
    assert word != "one"
    if word != "two":
        pytest.fail("DID NOT RAISE")  # as `pytest.raises` does, which is no Exception


def loop(*words: str) -> None:
    with all_cases() as case:
        for place, word in enumerate(words):
            with case(place, word):
                refused(word)


def skip_first(*words: str) -> None:
    with all_cases() as case:
        for place, word in enumerate(words):
            with case(place, word):
                if place == 0:
                    pytest.skip("for a reason")
                refused(word)


def test_every_failure_is_told_with_its_place() -> None:
    with pytest.raises(BaseExceptionGroup, match="3 of 5 cases failed") as caught:
        loop("two", "one", "three", "two", "one")
    notes = [failure.__notes__ for failure in caught.value.exceptions]
    assert notes == [["case: 1, one"], ["case: 2, three"], ["case: 4, one"]]


def test_a_loop_without_a_failure_passes() -> None:
    loop("two", "two")


def test_a_loop_without_a_case_proves_nothing() -> None:
    with pytest.raises(AssertionError, match="no case"), all_cases():
        pass


def test_a_loop_is_skipped_where_all_of_its_cases_are() -> None:
    with pytest.raises(pytest.skip.Exception, match="for a reason"):
        skip_first("two")


def test_a_case_that_is_skipped_hides_no_other() -> None:
    with pytest.raises(BaseExceptionGroup, match="1 of 2 cases failed"):
        skip_first("two", "one")


def numbers() -> Iterator[tuple[str, int]]:
    return ((f"number {number}", number) for number in (1, 2, 3))


@looped("value", {"numbers": numbers})
def seen(value: int, found: list[int]) -> None:
    found.append(value)
    assert value != 2


def test_a_looped_test_takes_all_cases_or_the_first() -> None:
    found: list[int] = []
    seen(first_case=True, found=found)
    assert found == [1]
    with pytest.raises(BaseExceptionGroup) as caught:
        seen(first_case=False, found=found)
    assert found == [1, 1, 2, 3]
    assert caught.value.exceptions[0].__notes__ == ["case: numbers, number 2"]


@each("word", ["one", "two"], ids=str.upper)
@each_case(("p", "m"), [(1, 2), (3, 4)])
def stacked(word: str, p: int, m: int, found: list[object]) -> None:
    found.append((word, p, m))
    assert (word, p) != ("two", 3)


def test_stacked_loops_take_all_pairs_and_say_where_they_were() -> None:
    found: list[object] = []
    with pytest.raises(BaseExceptionGroup) as caught:
        stacked(first_case=False, found=found)
    assert found == [("one", 1, 2), ("one", 3, 4), ("two", 1, 2), ("two", 3, 4)]
    (outer,) = caught.value.exceptions
    assert outer.__notes__ == ["case: TWO"]
    assert isinstance(outer, BaseExceptionGroup)
    assert outer.exceptions[0].__notes__ == ["case: p=3, m=4"]


def test_the_quick_tier_takes_the_first_case_of_every_other_value() -> None:
    found: list[object] = []
    stacked(first_case=True, found=found)
    assert found == [("one", 1, 2), ("two", 1, 2)]


def test_pytest_supplies_what_is_not_looped_over() -> None:
    assert list(signature(stacked).parameters) == ["first_case", "found"]

"""A loop over cases hides no failure and no empty list."""

from collections.abc import Iterator

import pytest

from loops import all_cases, looped


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


def test_what_stops_a_test_is_not_kept_for_later() -> None:
    with pytest.raises(pytest.skip.Exception), all_cases() as case, case("skipped"):
        pytest.skip("for a reason")


def numbers() -> Iterator[tuple[str, int]]:
    return ((f"number {number}", number) for number in (1, 2, 3))


@looped("value", {"numbers": numbers})
def seen(value: int, found: list[int]) -> None:
    found.append(value)
    assert value != 2


def test_a_looped_test_takes_all_cases_or_the_first() -> None:
    found: list[int] = []
    seen(group="numbers", first_case=True, found=found)
    assert found == [1]
    with pytest.raises(BaseExceptionGroup) as caught:
        seen(group="numbers", first_case=False, found=found)
    assert found == [1, 1, 2, 3]
    assert caught.value.exceptions[0].__notes__ == ["case: number 2"]

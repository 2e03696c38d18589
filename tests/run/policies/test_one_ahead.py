import threading

import pytest

from penstock.run.policies.one_ahead import OneAhead


def test_the_next_one_is_made_at_the_side_and_handed_over() -> None:
    makers: dict[int, str] = {}

    def make(number: int) -> int:
        makers[number] = threading.current_thread().name
        return 10 * number

    ahead = OneAhead(make)
    assert [ahead.take(number, number + 2) for number in (0, 2, 4)] == [0, 20, 40]
    ahead.close()
    assert makers[0] == threading.current_thread().name
    assert all(makers[number].startswith("next-plan") for number in (2, 4))
    assert ahead.times.making >= 0


def test_another_one_than_the_next_is_made_at_once() -> None:
    ahead = OneAhead(str)
    assert [ahead.take(0, 1), ahead.take(7, 8), ahead.take(8, 9)] == ["0", "7", "8"]
    ahead.close()


def test_what_goes_wrong_at_the_side_is_raised_where_it_is_taken() -> None:
    def make(number: int) -> int:
        return 10 // number

    ahead = OneAhead(make)
    assert ahead.take(1, 0) == 10
    with pytest.raises(ZeroDivisionError):
        ahead.take(0, 1)
    ahead.close()

"""Every two values that can meet do, in far fewer rows than there are."""

from itertools import product

import pytest

from covering import Row, covering, pairs_of

AXES = {"a": range(5), "b": "xyz", "c": (False, True), "d": (False, True), "e": range(3)}


def all_rows() -> list[Row]:
    return [dict(zip(AXES, values)) for values in product(*AXES.values())]


def test_all_pairs_meet_in_few_rows() -> None:
    found = covering(AXES)
    assert set.union(*map(pairs_of, found)) == set.union(*map(pairs_of, all_rows()))
    assert 15 <= len(found) <= 20 < len(all_rows())


def test_no_row_is_there_that_is_not_allowed_and_no_pair_is_lost_that_is() -> None:
    def allowed(row: Row) -> bool:
        return (row["a"] < 2 or row["b"] != "x") and not (row["c"] and row["d"])

    found = covering(AXES, allowed)
    can_be = set.union(*(pairs_of(row) for row in all_rows() if allowed(row)))
    assert all(map(allowed, found))
    assert set.union(*map(pairs_of, found)) == can_be
    assert (("a", 4), ("b", "x")) not in can_be


def test_a_second_time_gives_the_same_rows() -> None:
    assert covering(AXES) == covering(AXES)


@pytest.mark.parametrize("axes", [{"a": (1, 2), "b": ()}, {"a": (1,), "b": (2,)}])
def test_axes_without_a_choice_have_one_row_at_most(axes: dict[str, tuple[int, ...]]) -> None:
    assert covering(axes) == [{"a": 1, "b": 2}][: len(axes["b"])]

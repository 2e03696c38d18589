"""The rows of a covering design have every pair of values that can meet."""

from collections.abc import Iterable
from itertools import chain, product

import pytest

from train.reshard.covering import Row, cover_pairs, pairs_of
from train.reshard.layouts import (
    FAMILIES,
    MODELS,
    all_layouts,
    chosen_changes,
    chosen_layouts,
)

pytestmark = pytest.mark.torch


def test_four_rows_have_all_pairs_of_three_factors_of_two_values() -> None:
    rows = cover_pairs(product("ab", "cd", "ef"))
    assert [*map("".join, rows)] == ["ace", "adf", "bcf", "bde"]


def test_pairs_that_no_candidate_has_are_not_asked_for() -> None:
    assert cover_pairs([(1, 2), (1, 3)]) == [(1, 2), (1, 3)]
    assert cover_pairs([]) == []


def test_any_two_values_of_a_layout_meet_and_no_layout_is_chosen_for_nothing() -> None:
    chosen, wanted = chosen_layouts(), _pairs(all_layouts())
    assert _pairs(chosen) == wanted
    assert len(chosen) < len(all_layouts()) / 10
    assert all(_pairs(set(chosen) - {last}) < wanted for last in chosen[-1:])


def test_any_two_values_of_model_first_layout_and_second_layout_meet() -> None:
    layouts, found = chosen_layouts(), _pairs(change.row for change in chosen_changes())
    rows = product(MODELS, (False, True), layouts, layouts)
    assert found == _pairs((*model, *saved, *resumed) for *model, saved, resumed in rows)
    families = {(change.saved.family, change.resumed.family) for change in chosen_changes()}
    assert families == set(product(FAMILIES, FAMILIES))


def _pairs(rows: Iterable[Row]) -> set[object]:
    return set(chain.from_iterable(map(pairs_of, rows)))

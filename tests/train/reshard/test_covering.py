"""The rows of a covering design have every pair of values that can meet."""

from collections.abc import Iterable
from itertools import chain, product

import pytest

from covering import Pair, Row, pairs_of
from train.reshard.layouts import (
    FAMILIES,
    MODELS,
    Change,
    Spread,
    all_layouts,
    chosen_changes,
    chosen_layouts,
)

pytestmark = pytest.mark.torch


def test_any_two_values_of_a_layout_meet_and_no_layout_is_chosen_for_nothing() -> None:
    chosen, wanted = chosen_layouts(), _pairs(map(Spread._asdict, all_layouts()))
    assert _pairs(map(Spread._asdict, chosen)) == wanted
    assert len(chosen) < len(all_layouts()) / 10
    assert _pairs(map(Spread._asdict, chosen[:-1])) < wanted


@pytest.mark.long
def test_any_two_values_of_model_first_layout_and_second_layout_meet() -> None:
    layouts, found = chosen_layouts(), _pairs(change.row for change in chosen_changes())
    rows = product(MODELS, (False, True), layouts, layouts)
    assert found == _pairs(Change(*each).row for each in rows)
    families = {(change.saved.family, change.resumed.family) for change in chosen_changes()}
    assert families == set(product(FAMILIES, FAMILIES))


def _pairs(rows: Iterable[Row]) -> set[Pair]:
    return set(chain.from_iterable(map(pairs_of, rows)))

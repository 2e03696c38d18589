"""Whatever can be combined with a schedule runs together, and is equal to the oracle."""

from itertools import combinations

import pytest

from covering import Row, pairs_of
from penstock.arch.cell_shape import CellShape
from penstock.transform import CHANGES
from penstock.verify.compare import TOLERANCE
from penstock.verify.verifier import Verifier
from verify.combination_matrix import AXES, design, refusal, refusal_in_cell, trial_of
from write_combinations import PAGE, refusals, rewritten

pytestmark = pytest.mark.torch


def named(row: Row) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in row.items())


@pytest.mark.matrix
def test_every_two_meet_but_those_that_are_refused() -> None:
    """A change that a schedule refuses on two devices is refused on four, or has nothing to do on
    one; keys that are lent cannot go round in a ring. No other two things are missing."""
    met = set.union(*map(pairs_of, design()))
    axes = combinations(AXES, 2)
    every = {((a, x), (b, y)) for a, b in axes for x in AXES[a] for y in AXES[b]}
    for (_, name), (axis, value) in every - met:
        change = frozenset({axis} & CHANGES.keys())
        cell = CellShape(ring=1 + (value == "ring"))
        assert refusal(name, 2, change) or refusal_in_cell(name, 2, change, cell)


@pytest.mark.matrix
def test_all_combinations_are_equal_to_the_oracle(verifier: Verifier) -> None:
    wrong, runs = {}, sorted(design(), key=lambda row: trial_of(row).processes)
    assert len(runs) >= 120
    for row in runs:
        found = verifier.row(trial_of(row))
        assert found.tolerance == TOLERANCE["cpu"]["float64"]
        if not found.equal:
            wrong[named(row)] = found.explanation
    assert wrong == {}


@pytest.mark.matrix
def test_the_page_has_every_refusal() -> None:
    page = PAGE.read_text()
    assert page == rewritten(page, refusals()), "python scripts/write_combinations.py writes it"


def test_the_page_has_every_change() -> None:
    rows = PAGE.read_text().split("in a configuration |")[1].split("\n\n")[0]
    assert [line.split("`")[1] for line in rows.splitlines()[2:]] == [*CHANGES]

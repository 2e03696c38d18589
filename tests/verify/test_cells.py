"""Cells on real processes: every two circumstances meet in a run that is equal to the oracle."""

from itertools import combinations

import pytest

from covering import Pair, Row, pairs_of
from penstock.verify.compare import TOLERANCE
from penstock.verify.verifier import Verifier
from verify.cell_matrix import AXES, PROCESSES, design, refused, trial_of

pytestmark = pytest.mark.torch


def tensor_beside(tensor: int, *sequence: int) -> Pair:
    return (("tensor", tensor), ("sequence", sequence))


def named(row: Row) -> str:
    return ", ".join(f"{value}" for value in row.values())


@pytest.mark.long
def test_every_two_circumstances_meet_but_those_that_no_run_can_have() -> None:
    """Three tensor ranks have two, one and one of the heads, so that no two ranks can exchange
    them; and beside a ring of three they are nine processes (see test_uneven_cells.py)."""
    met = set.union(*map(pairs_of, design()))
    axes = combinations(AXES, 2)
    every = {((a, x), (b, y)) for a, b in axes for x in AXES[a] for y in AXES[b]}
    assert [*refused()] == [(3, (2, 1)), (3, (2, 2))]
    assert every - met == {tensor_beside(3, *of) for of in ((2, 1), (2, 2), (1, 3))}


@pytest.mark.long
def test_there_are_sixty_runs_on_few_processes() -> None:
    trials = [trial_of(row) for row in design()]
    assert len(trials) >= 60
    assert {trial.processes for trial in trials} == set(PROCESSES)
    assert {trial.schedule.shape.devices for trial in trials} >= {1, 2}


@pytest.mark.matrix
def test_cells_are_equal_to_the_oracle_under_all_circumstances(verifier: Verifier) -> None:
    wrong = {}
    for row in sorted(design(), key=lambda row: trial_of(row).processes):
        found = verifier.row(trial_of(row))
        assert found.tolerance == TOLERANCE["cpu"]["float64"]
        if not found.equal:
            wrong[named(row)] = found.explanation
    assert wrong == {}

"""An answer depends on what was asked, and on nothing of the process that gives it."""

import os
import subprocess
import sys
from itertools import chain

import pytest

from penstock.estimate.price import Estimate, estimate_step
from penstock.planner.bounding import SharedPieces
from penstock.planner.divisions import kind_of
from penstock.planner.problem import problem_from
from penstock.planner.simulations import Limited, Slower, simulate_alike
from planner.problems import every, row

pytestmark = pytest.mark.long

ASKED = {
    "--model": "llama3.2-1b",
    "--cluster": "h100:8",
    "--tokens": "8192",
    "--batch-tokens": "131072",
    "--rows": "1",
    "--mesh": "tensor=2,sequence=2",
    "--schedule": "seq1f1b-i",
    "--slices": "2",
    "--top": "2",
    "--simulate": "30",
}


def _answer(seed: int) -> str:
    """What a new process prints, whose sets of names have another order."""
    environment = os.environ | {"PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-m", "penstock", "plan", *chain(*ASKED.items()), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout


@pytest.mark.matrix
@pytest.mark.processes
def test_processes_with_other_seeds_of_hashes_print_the_same() -> None:
    assert _answer(1) == _answer(2)


def test_of_one_kind_the_fastest_that_fits_is_kept() -> None:
    """Others of the kind are only timed: all that is said of them is what they take."""
    found, numbers = every(), {}
    for number in range(0, len(found), 7):
        layout = found.layout(number)
        if layout.schedule == "1f1b" and layout.pipeline == 2 and layout.offload == "none":
            numbers[layout] = number
    layouts = [*numbers][:12]
    pieces, unlimited = (
        SharedPieces(problem_from(row())),
        [Limited(each, float("inf"), 0.0) for each in layouts],
    )
    outcomes = simulate_alike(pieces, unlimited)
    alone = [estimate_step(layout) for layout in layouts]
    assert [outcome.seconds for outcome in outcomes] == [each.seconds for each in alone]
    for kind in {*map(kind_of, layouts)}:
        of_kind = [at for at, layout in enumerate(layouts) if kind_of(layout) == kind]
        fitting = [at for at in of_kind if alone[at].fits]
        best = min(fitting, key=lambda at: (alone[at].seconds, at), default=None)
        for at in of_kind:
            slower = best is not None and (alone[best].seconds, best) < (alone[at].seconds, at)
            assert outcomes[at] == (Slower(alone[at].seconds) if slower else alone[at])
            assert slower or isinstance(outcomes[at], Estimate)

"""Under torchrun: no launcher of ours, the agent's store, and restarts that go on where it was."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.matrix]  # every rank of torchrun imports torch

Finished = subprocess.CompletedProcess[str]


def torchrun(state: Path, *words: object) -> Finished:
    """The toy pipeline with two ranks; its sums are kept in the folder `state`."""
    state.mkdir()
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "2"]
    program = [*options, "-m", "run.faults.toy", *map(str, words)]
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "STATE": str(state)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return torchrun(tmp_path_factory.mktemp("undisturbed") / "state", 40, "nothing")


def test_the_ranks_find_the_store_of_the_agent(undisturbed: Finished) -> None:
    assert undisturbed.returncode == 0, undisturbed.stderr
    assert undisturbed.stdout.startswith("sum ")


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("kill", "error: rank 1 is gone, last seen "),
        pytest.param(
            "raise",
            "error: rank 1, at 1F1 (op 3 of 8 of step 25): RuntimeError: inconsistent",
            marks=pytest.mark.matrix,
        ),
    ],
)
def test_a_restart_ends_where_the_undisturbed_run_does(
    undisturbed: Finished, tmp_path: Path, fault: str, cause: str
) -> None:
    done = torchrun(tmp_path / "state", 40, fault, 1, 25, 2)
    assert done.returncode == 0, done.stderr
    assert done.stdout == undisturbed.stdout
    assert done.stderr.count(cause) == done.stderr.count("error: rank ") == 1, done.stderr

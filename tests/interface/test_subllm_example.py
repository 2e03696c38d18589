"""examples/subllm.py, as someone calls it who has just found it, and once more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples/subllm.py"

pytestmark = [pytest.mark.torch, pytest.mark.processes]


def called(folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *given],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def table(printed: str) -> list[int]:
    """Tokens in the rows of the table of losses."""
    first = (line.split()[0] for line in printed.splitlines() if line.strip())
    return [int(word) for word in first if word.isdecimal()]


@pytest.mark.long
def test_it_says_what_it_does_and_refuses_what_is_no_number_of_steps(tmp_path: Path) -> None:
    assert "Trains examples/subllm.toml" in called(tmp_path, "--help").stdout
    refused = called(tmp_path, "0")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "0 steps are not enough" in refused.stderr
    assert not [*tmp_path.iterdir()]


@pytest.mark.matrix
def test_a_second_call_trains_anew(tmp_path: Path) -> None:
    """Two sequences of 1,024 tokens a step; it would have shown the three steps of the first."""
    for steps in (3, 2):
        done = called(tmp_path, str(steps))
        assert done.returncode == 0, done.stderr
        assert table(done.stdout) == [2048 * (step + 1) for step in range(steps)]
        assert "training keeps 0.64" in done.stdout
    assert (tmp_path / "runs/subllm-example/loss.svg").exists()

"""A program of one's own as ranks: it trains, and a rank that hangs is named."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli.conftest import Penstock

pytestmark = [pytest.mark.torch, pytest.mark.processes]

PROGRAM = """
import sys, time
import torch
from torch import distributed, nn
import penstock

class Slow(nn.Linear):
    def forward(self, x):
        if self.training and pipeline is not None and distributed.get_rank() == 1:
            time.sleep(float(sys.argv[1]))
        return super().forward(x)

pipeline = None
distributed.init_process_group("gloo")
made = penstock.pipeline(
    [nn.Linear(3, 3), Slow(3, 3)], "1f1b", microbatches=2, loss=nn.functional.mse_loss
)
made.patience = 8.0  # the first backward takes seconds on a busy machine
made.step(torch.zeros(4, 3), torch.ones(4, 3))
pipeline = made
loss = made.step(torch.zeros(4, 3), torch.ones(4, 3))
print(f"rank {distributed.get_rank()} of {distributed.get_world_size()}: loss {loss:.6f}")
made.close()
"""


def launched(program: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "penstock", "launch", "-n", "2", "--force", str(program)]
    return subprocess.run(
        [*command, *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_program_is_run_as_ranks_and_a_rank_that_hangs_is_named(tmp_path: Path) -> None:
    program = tmp_path / "mine.py"
    program.write_text(PROGRAM)
    done = launched(program, "0")
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 2: loss " in done.stdout
    done = launched(program, "120")
    assert done.returncode == 1
    assert "rank 1 has been stuck for 8" in done.stderr
    assert "it runs 1F0" in done.stderr
    assert "rank 0 waits for" in done.stderr


def test_a_program_that_is_not_there_is_refused(penstock: Penstock) -> None:
    found = penstock("launch -n 2 nowhere.py")
    assert found.code == 2
    assert "error: nowhere.py is not a file" in found.err


@pytest.mark.matrix
@pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")
def test_the_example_of_a_decoder_trains_and_equals_one_process() -> None:
    done = launched(Path(__file__).parents[2] / "examples/own_decoder.py")
    assert done.returncode == 0, done.stderr
    *lines, verdict = done.stdout.splitlines()
    losses = [float(line.split()[-1]) for line in lines if line.startswith("step ")]
    assert losses[-1] < losses[0] / 1.5
    assert verdict.startswith("seq1f1b: equal to one process")

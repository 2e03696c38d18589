"""Processes that answer rows do not outlive the one that started them."""

import sys
from json import dumps
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from estimate.layouts import row
from penstock.estimate.many import WORTH_PROCESSES

pytestmark = [pytest.mark.long, pytest.mark.processes]


def test_a_run_that_is_ended_by_a_signal_leaves_no_process(tmp_path: Path) -> None:
    """Whoever is left would hold the other end of the pipe open. Answers to so many rows do not fit
    into it, so that the run has not ended when it is told to."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text(f"{dumps(row())}\n" * 2 * WORTH_PROCESSES)
    words = [sys.executable, "-m", "penstock", "estimate", "--from", str(rows)]
    with Popen(words, stdout=PIPE, text=True) as run:
        assert run.stdout is not None
        assert "step_seconds" in run.stdout.readline()
        run.terminate()
        run.communicate(timeout=30)
    assert run.returncode

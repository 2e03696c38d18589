"""The solver in a process of its own, at a lower priority, while a run trains on.

A thread would hold up the one that trains, and cannot be ended. Problem and answer are files of a
folder that nobody else knows, so that neither side ever waits for the other.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.parent_process import hold, tie
from penstock.search.exact.exact import Solution
from penstock.search.exact.measured_problem import OrderProblem

LOWER_PRIORITY = 3
"""What is added to the niceness of the process: the run comes first."""
PROBLEM, ANSWER, SAID = "problem", "answer", "said"
"""Files of the folder."""


class SolverProcess:
    """A problem that is being solved."""

    def __init__(self, problem: OrderProblem) -> None:
        self.problem, self._folder, tied = problem, TemporaryDirectory(), tie()
        self._file(PROBLEM).write_bytes(pickle.dumps(problem))
        with self._file(SAID).open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, self._folder.name],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**os.environ, **tied.environment},
                pass_fds=(tied.descriptor,),
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> None:
        """Return when it has ended."""
        self._process.wait()

    def solution(self) -> Solution | None:
        """What was found, once it does not run any more; None where it failed."""
        self.wait()
        if self._process.returncode:
            return None
        found: Solution = pickle.loads(self._file(ANSWER).read_bytes())
        return found

    @property
    def failure(self) -> str:
        """The last line that a process which failed has said."""
        lines = self._file(SAID).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with code {self._process.returncode}"

    def close(self) -> None:
        """End it, whatever it has found."""
        if self.running:
            self._process.kill()
        self.wait()
        self._folder.cleanup()

    def _file(self, name: str) -> Path:
        return Path(self._folder.name) / name


def solve_folder(folder: Path) -> None:
    """Solve the problem of a folder."""
    hold()
    os.nice(LOWER_PRIORITY)
    problem: OrderProblem = pickle.loads((folder / PROBLEM).read_bytes())
    (folder / ANSWER).write_bytes(pickle.dumps(problem.solve()))


if __name__ == "__main__":
    solve_folder(Path(sys.argv[1]))

"""A process that plans the groups of the next batch while the one before is trained.

A thread would hold up the one that trains. Lengths go in and plans come out as pickles, one at a
time; the process ends with the one that started it. If it fails, the plan is made here: it is the
same one, for it follows from lengths and costs alone.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO

from penstock.parent_process import hold, tie
from penstock.plan.sequence_groups.planner import GroupPlanner, TimedPlan

PLANS_AFTER_STEPS = 3
"""What is added to the niceness of the process: the run comes first."""


class PlanningProcess:
    """A planner in a process of its own."""

    def __init__(self, planner: GroupPlanner) -> None:
        self.planner = planner
        self._asked: tuple[int, ...] | None = None
        tied = tie()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **tied.environment},
            pass_fds=(tied.descriptor,),
        )
        self._send(planner)

    def ask(self, lengths: Sequence[int]) -> None:
        """Begin to plan a batch of these lengths, where nothing else is being planned."""
        if self._asked is None:
            self._asked = tuple(lengths)
            self._send(self._asked)

    def plan(self, lengths: Sequence[int]) -> TimedPlan:
        """The plan of a batch: what was asked for, or one that is made now."""
        found = self._answer() if self._asked else None
        asked, self._asked = self._asked, None
        if found is None or asked != tuple(lengths):
            return self.planner.plan(lengths)
        return found

    def close(self) -> None:
        """End it, whatever it is planning."""
        self._process.kill()
        self._process.wait()
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                with suppress(OSError):  # what it was still to be sent
                    end.close()

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
        except (OSError, ValueError):  # it has ended, which is seen when its answer is wanted
            return

    def _answer(self) -> TimedPlan | None:
        assert self._process.stdout is not None
        try:
            found = pickle.load(self._process.stdout)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            return None
        return found if isinstance(found, TimedPlan) else None


def serve_plans(asked: BinaryIO, answers: BinaryIO) -> None:
    """Answer with a plan for all lengths that come, as long as they come; None for what has no
    plan, for whoever asks finds out why."""
    planner: GroupPlanner = pickle.load(asked)
    while True:
        try:
            lengths = pickle.load(asked)
        except EOFError:
            return
        try:
            found = planner.plan(lengths)
        except Exception:
            found = None
        pickle.dump(found, answers)
        answers.flush()


if __name__ == "__main__":
    hold()
    os.nice(PLANS_AFTER_STEPS)
    serve_plans(sys.stdin.buffer, sys.stdout.buffer)

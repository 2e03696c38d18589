"""Programs of the plans of a run: proven, lowered, with the end of the step.

A plan may be lowered before its turn comes, by a thread beside the step that runs. Whoever asks for
a program that is just being made waits for it.
"""

from threading import Lock

from penstock.core.program import Program
from penstock.run.program.sharded_schedule import BufferCounts
from penstock.run.program.step_end import StepEnd
from penstock.run.program.step_plan import StepPlan

AT_HAND = 4
"""Programs that are kept until an executor has them: of this step, the next, an evaluation."""


class Programs:
    """Makes programs for so many replicas, with so many buffers and this end of a step."""

    def __init__(self, replicas: int, buffers: BufferCounts | None, end: StepEnd) -> None:
        self._given = (replicas, buffers, end)
        self._made: dict[str, Program] = {}
        self._lock = Lock()

    def of(self, plan: StepPlan) -> Program:
        """The program of a plan; plans of the same order have one."""
        with self._lock:
            order = plan.schedule.digest
            program = self._made.pop(order, None) or plan.program(*self._given)
            self._made[order] = program
            while len(self._made) > AT_HAND:
                self._made.pop(next(iter(self._made)))
            return program

"""Who chooses the plan of the next steps, and what is said of a choice.

The layout of a run is fixed, but every step may have another order. A policy is told what the last
step took, on the first rank alone, and may propose a plan. All ranks hear the proposal and take it
before the same step (run/policies/changing.py). What is computed is the same: the batch, and for
every parameter the sum over its microbatches.
"""

from typing import NamedTuple, Protocol

from penstock.core.schedule import Schedule
from penstock.run.observe.step_times import MeasuredTimes
from penstock.run.program.step_plan import StepPlan


class Proposal(NamedTuple):
    """A plan to take, and why."""

    schedule: Schedule
    lengths: tuple[tuple[int, ...], ...]
    """Tokens of each slice of each microbatch."""
    rows: int
    """Sequences of a microbatch."""
    why: str
    before: float | None = None
    """Seconds that a step of the plan in force is predicted to take; None where that is not why."""
    after: float | None = None
    """Seconds that a step of this plan is predicted to take."""


class PlanPolicy(Protocol):
    """Proposes plans; asked on the first rank between two steps."""

    remarks: list[str]
    """What a person should be told beside proposals; whoever tells it empties the list."""

    def propose(self, plan: StepPlan, times: MeasuredTimes) -> Proposal | None:
        """A plan to take in the place of the one in force, whose last step took these times."""
        ...

    def close(self) -> None:
        """End what works at the side."""
        ...


class Fixed:
    """The plan of the start for all steps."""

    def __init__(self) -> None:
        self.remarks: list[str] = []

    def propose(self, plan: StepPlan, times: MeasuredTimes) -> Proposal | None:
        return None

    def close(self) -> None:
        return None


class PlanChange(NamedTuple):
    """A plan that has come into force."""

    step: int
    """Steps that were done before it."""
    plan: str
    why: str
    before: float | None = None
    """Predicted seconds of a step under the plan before; None for the plan of the start."""
    after: float | None = None
    """Predicted seconds of a step under this one."""

    @property
    def words(self) -> str:
        """What a person is told.

        >>> PlanChange(10, "1f1b+group2", "transfers take 8.0 ms", 0.25, 0.2).words
        'from step 11 on: 1f1b+group2, predicted 0.200 s a step instead of 0.250 s: transfers \
take 8.0 ms'
        """
        gain = ""
        if self.before is not None and self.after is not None:
            gain = f", predicted {self.after:.3f} s a step instead of {self.before:.3f} s"
        return f"from step {self.step + 1} on: {self.plan}{gain}: {self.why}"

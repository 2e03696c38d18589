"""A step as its ops predict it, each of them measured alone.

A schedule is planned with the costs of ops. On one device nothing waits for another one, so the
simulated step is as good as these costs: an op that is slower or faster when another one runs
before it, or time that belongs to no op, would show as a difference.
"""

from typing import Any

import torch

from penstock.bench.measure.step_clock import synchronise
from penstock.cost.model import UnitCost
from penstock.cost.profile import Profile
from penstock.run.execute.executor import Executor
from penstock.run.execute.observer import Quiet
from penstock.run.program.calls import Call
from penstock.sim import simulate


class OneByOne(Quiet):
    """Lets a device become idle before and after every op."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def runs(self, call: Call) -> None:
        synchronise(self.device)

    def ran(self, call: Call) -> None:
        synchronise(self.device)


def profile_of(executor: Executor) -> Profile:
    """The costs of the last step's ops, by kind, stage and slice."""
    starts, ends = executor.spans.nanoseconds()
    calls = executor.spans.calls
    times = {call.op: (end - start) * 1e-9 for call, start, end in zip(calls, starts, ends)}
    schedule = executor.program.schedule
    return Profile.of(schedule, [times[op] for op in schedule.table.ops()], UnitCost())


def predicted_seconds(executor: Executor, profile: Profile) -> float:
    """A step of the executor's schedule with these costs."""
    return float(simulate(executor.program.schedule, profile).makespan)


def prediction(predicted: float, measured: float) -> dict[str, Any]:
    """What a row says of it."""
    return {"predicted_seconds": predicted, "prediction_error": predicted / measured - 1}

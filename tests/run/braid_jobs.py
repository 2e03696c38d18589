"""What the ranks of the tests' crew do with braided pairs: steps, and how many sums overlap."""

from typing import NamedTuple
from unittest import mock

from torch import Tensor

from penstock.model.parallel.group import Pending
from penstock.run.comm.cell_group import StartedCollective
from penstock.run.process.rendezvous import Connection
from penstock.run.program.step_plan import StepPlan
from run.jobs import batch_of, engine_of


class BraidedStep(NamedTuple):
    """What a step leaves on one rank."""

    loss: float
    gradients: dict[int, Tensor]
    """Flat, of each stage."""
    under_way: int
    """Collectives of its cell that a rank had started and not yet waited for, at most."""


class Count:
    """Collectives of a cell under way."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def start(self, begin: object) -> object:
        def started(self_: StartedCollective, work: Pending, *others: object) -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            begin(self_, work, *others)  # type: ignore[operator]

        return started

    def end(self, wait: object) -> object:
        def waited(self_: StartedCollective) -> None:
            self.now -= self_._work is not None
            wait(self_)  # type: ignore[operator]

        return waited


def braided_step(connection: Connection, plan: StepPlan) -> BraidedStep:
    """Loss and gradients of one step, and how much communication was under way at once."""
    count = Count()
    begin, end = count.start(StartedCollective.__init__), count.end(StartedCollective.wait)
    with (
        mock.patch.object(StartedCollective, "__init__", begin),
        mock.patch.object(StartedCollective, "wait", end),
        engine_of(plan) as engine,
    ):
        outcome = engine.gradients(batch_of(plan))
        gradients = {stage: each.grad.clone() for stage, each in engine.weights.items()}
    return BraidedStep(outcome.loss, gradients, count.most)

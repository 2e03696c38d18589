"""What devices hold where their activations go to the host and come back."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor

from penstock.run.execute import lane_run
from penstock.run.execute.memory_reads import MemoryReads
from penstock.run.process.rendezvous import Connection
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.state import entries
from run.jobs import batch_of, engine_of


class ReadsUntilAwaited(MemoryReads):
    """As on a GPU: memory comes back when the compute lane has waited for its copy."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.ends_when_awaited = True


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    with mock.patch.object(lane_run, "MemoryReads", ReadsUntilAwaited):
        yield


def gradients_of(connection: Connection, plan: StepPlan) -> dict[str, Tensor]:
    """Gradients of this rank after one batch."""
    with engine_of(plan) as engine:
        engine.gradients(batch_of(plan))
        assert engine.host.pool.late == 0
        return {entry.name: entry.grad.clone() for entry in entries(engine)}

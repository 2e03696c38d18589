"""Mistakes with experts for the verifier to notice: jobs that run a trial with one thing wrong."""

from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from penstock.model.layers import expert_exchange
from penstock.model.parallel.group import RankGroup, Work
from penstock.model.stages.carried_loads import CarriedLoads
from penstock.run.process.rendezvous import Connection
from penstock.run.step import sharding
from penstock.run.step.gradient_runs import GradientRun
from penstock.verify.trial import TrialPart, run_trial
from penstock.verify.variants import Trial

_exchanged = expert_exchange._exchanged
_open, _close = CarriedLoads.open, CarriedLoads.close


def zeroed_exchange(connection: Connection, trial: Trial) -> TrialPart:
    """What came from other ranks is zeros on one of them."""

    def lossy(group: RankGroup, rows: Tensor, *counts: Sequence[int]) -> Work[Tensor]:
        found = yield from _exchanged(group, rows, *counts)
        return found.zero_() if group.index else found

    with mock.patch.object(expert_exchange, "_exchanged", lossy):
        return run_trial(connection, trial)


def dropped_row(connection: Connection, trial: Trial) -> TrialPart:
    """The last row that came from another rank is dropped, as by an expert that is full."""

    def lossy(group: RankGroup, rows: Tensor, *counts: Sequence[int]) -> Work[Tensor]:
        found = yield from _exchanged(group, rows, *counts)
        return torch.cat((found[:-1], torch.zeros_like(found[-1:])))

    with mock.patch.object(expert_exchange, "_exchanged", lossy):
        return run_trial(connection, trial)


def experts_added_up(connection: Connection, trial: Trial) -> TrialPart:
    """Gradients of experts are added up over replicas, which own different ones."""

    def over_copies(layout: Any, mesh: Any) -> list[GradientRun]:
        return [GradientRun(slice(None), mesh.copies)]

    with mock.patch.object(sharding, "gradient_runs", over_copies):
        return run_trial(connection, trial)


def loads_of_one_stage(connection: Connection, trial: Trial) -> TrialPart:
    """Stages do not add the loads of those before them."""

    def alone(carried: CarriedLoads, x: Tensor | None) -> Any:
        rows, loads = _open(carried, x)
        return rows, torch.zeros_like(loads)

    with mock.patch.object(CarriedLoads, "open", alone):
        return run_trial(connection, trial)


def loads_of_one_slice(connection: Connection, trial: Trial) -> TrialPart:
    """The last stage knows the loads of the last slice alone."""

    def last(carried: CarriedLoads, loads: Tensor | None, memory: Any) -> Work[Tensor | None]:
        found = yield from _close(carried, loads, memory)
        if memory is not None and carried.place.last:
            memory.loads = found
        return found

    with mock.patch.object(CarriedLoads, "close", last):
        return run_trial(connection, trial)

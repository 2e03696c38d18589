"""Gradients brought together: over the replicas of a stage, and over the two ends of a tied weight.

A stage's sum over replicas begins as soon as its last weight gradient is there, while the devices
still work on other stages or wait for the end of the step.
"""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.core.meaning import MEANING
from penstock.core.schedule import Schedule
from penstock.model.stages.weights import Weights
from penstock.run.comm.collective import Finish, gathered, start_adding
from penstock.run.comm.mesh import Mesh

_WRITES_GRADIENT = frozenset(
    kind for kind, entry in MEANING.items() if any(ref.buffer == "dw" for ref in entry.writes)
)


def last_gradient_rows(schedule: Schedule, stages: Mapping[int, Weights]) -> dict[int, int]:
    """The row after which the gradient of each stage is complete."""
    table = schedule.table
    writing = table.of_kinds(_WRITES_GRADIENT)
    return {int(np.flatnonzero(writing & (table.stage == stage))[-1]): stage for stage in stages}


class Reduction:
    """The sums over replicas of one device's stages, within one step."""

    def __init__(self, mesh: Mesh, stages: Mapping[int, Weights]) -> None:
        self._mesh, self._stages = mesh, stages
        self._under_way: list[Finish] = []

    def start(self, stage: int) -> None:
        self._under_way.append(start_adding(self._stages[stage].grad, self._mesh.copies))

    def finish(self) -> None:
        for finish in self._under_way:
            finish()
        self._under_way = []


def tie(mesh: Mesh, stages: Mapping[int, Weights]) -> None:
    """Give embedding and head the sum of both gradients.

    The two are separate everywhere, also where they are on one device, so that the sum is the same
    however the model is spread.
    """
    embedding, head = _gradient(stages, EMBEDDING), _gradient(stages, HEAD)
    if embedding is not None and head is not None:
        embedding.add_(head)
        head.copy_(embedding)
        return
    mine = embedding if embedding is not None else head
    if mine is not None and mesh.ends is not None:
        # The sum of two numbers does not depend on their order, so neither does this one.
        first, second = gathered(mine, mesh.ends)
        mine.copy_(first.add_(second))


def _gradient(stages: Mapping[int, Weights], name: str) -> Tensor | None:
    for weights in stages.values():
        if name in weights.layout.parts:
            return weights.named(weights.grad)[name]
    return None

"""Main weights and moments of some stages on the host, which updates them there.

A device keeps of such a stage what it computes with, and the gradient. When that is complete it
goes to the host, which updates by the arithmetic of every other stage, and new values come back
before anything reads them. Both copies and the update are calls of the copy lane, which runs on a
thread of its own (transform/host_update.py).

On a GPU what is copied is in pinned memory. On a CPU the host's memory is the device's too, and is
a second store: nothing of it is used to compute with, so order and copies are those of a GPU.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from penstock.errors import RunError
from penstock.model.stages.weights import Weights
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.side_stream import mark_of
from penstock.run.program.layout import Layout
from penstock.run.step.optimizer import AdamW, NoUpdate, StageOptimizer, make_optimizer
from penstock.run.step.sharding import OptimizerShards, Sharding
from penstock.run.step.stage_end import StageEnd

_HOST = torch.device("cpu")


def host_weights(
    layout: Layout, mesh: Mesh, stages: Collection[int], device: torch.device
) -> dict[int, Weights]:
    """What the host has of those of these stages that a device computes."""
    found: dict[int, Weights] = {}
    for stage in layout.stages_of(mesh.device):
        if stage in stages:
            parameters = layout.parameters(stage, mesh.tensor, mesh.replica)
            types = (layout.dtype, layout.main)
            trained = replace(parameters, frozen=None)  # the host updates nothing else
            held = Weights.empty(trained, dtype=types[0], main=types[1], device=_HOST)
            found[stage] = held.pinned() if device.type == "cuda" else held
    return found


def refuse_host_stages(stages: Collection[int], layout: Layout, sharding: Sharding) -> None:
    """Refuse updates on the host that ranks share, or of one end of a tied weight."""
    if stages and isinstance(sharding, OptimizerShards):
        raise RunError(
            f"the optimizer state of stages {', '.join(map(str, sorted(stages)))} is to be on the "
            "host, but ranks share it, and the copy lane has no place for gathering new weights",
            hint='set mesh.shard to "none", or optimizer.host_stages to "none"',
        )
    ends = {stage in stages for tie in layout.ties for stage in tie}
    if len(ends) > 1:
        raise RunError(
            f"stages {layout.ties[0][0]} and {layout.ties[0][1]} share a weight, but only one of "
            "them is updated on the host: the two copies of it would be rounded apart",
            hint="give both of these stages in optimizer.host_stages, or neither",
        )


def optimizer_on(
    settings: AdamW | NoUpdate, weights: Weights, host: Weights | None
) -> StageOptimizer:
    """The optimizer of a stage, on the host where that has weights of it."""
    if host is None:
        return make_optimizer(settings, weights)
    return HostOptimizer(make_optimizer(settings, host), weights, host)


class HostOptimizer:
    """Updates on the host what a device computes with."""

    def __init__(self, optimizer: StageOptimizer, weights: Weights, host: Weights) -> None:
        self._optimizer, self._weights, self.host = optimizer, weights, host
        self.moments: Mapping[str, Tensor] = optimizer.moments
        self._taken: torch.cuda.Event | None = None

    @property
    def steps(self) -> int:
        return self._optimizer.steps

    @steps.setter
    def steps(self, steps: int) -> None:
        self._optimizer.steps = steps

    @property
    def bytes(self) -> int:
        """What is on the host of weights, gradient and moments."""
        held = {id(each): each for each in (self.host.main, self.host.value, self.host.grad)}
        return sum(each.nbytes for each in (*held.values(), *self.moments.values()))

    @torch.no_grad()
    def take_gradient(self) -> None:
        """Copy it to the host. The copy may still be under way when this returns."""
        self.host.grad.copy_(self._weights.grad, non_blocking=True)
        self._taken = mark_of(self._weights.grad.device)

    @torch.no_grad()
    def update(self, rate: float, factor: float) -> None:
        """Update there, and copy new values to the device. When the gradient has come, the values
        of the update before it have gone: copies follow each other."""
        if self._taken is not None:
            self._taken.synchronize()
        self._optimizer.update(rate, factor)
        self._weights.value.copy_(self.host.value, non_blocking=True)


def bytes_on_host(ends: Iterable[StageEnd]) -> int:
    """What stages have there, with copies of what an update may have to put back."""
    away = [(end.optimizer, end.early) for end in ends if isinstance(end.optimizer, HostOptimizer)]
    return sum(each.bytes for pair in away for each in pair if each is not None)

"""A training step, whole: forward and backward by the program, gradients reduced over replicas,
tied weights, the norm, clipping, and the update.

The loss is the mean over all labels that count in the global batch, whatever the schedule, the
slices, the packing or the number of replicas: the count is agreed before the first forward, and
every gradient is that of loss sum / count.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from math import isfinite, sqrt
from resource import RUSAGE_SELF, getrusage
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.data.batch import Microbatch
from penstock.errors import RunError
from penstock.model.decoder import DecoderStage
from penstock.model.piece import Piece
from penstock.model.shapes import HEAD
from penstock.model.weights import Weights
from penstock.run.collective import add_up
from penstock.run.executor import Boundary, Executor
from penstock.run.feed import feed
from penstock.run.mesh import Mesh
from penstock.run.optimizer import AdamW, clip_factor, make_optimizer, squares
from penstock.run.plan import RunPlan
from penstock.run.reduction import Reduction, last_gradient_rows, tie
from penstock.run.spans import clock_of
from penstock.run.transport import Transport


class Outcome(NamedTuple):
    """What a step says of itself; the same on every rank."""

    loss: float
    """Mean over the labels that count."""
    norm: float
    """Of the whole model's gradient, before clipping."""
    labels: int


class Engine:
    """One rank's part of a run: its stages, its executor and its optimizer."""

    def __init__(
        self, plan: RunPlan, mesh: Mesh, transport: Transport, *, adam: AdamW, device: torch.device
    ) -> None:
        self.plan, self.mesh, self.adam, self.device = plan, mesh, adam, device
        mine = [stage for stage, home in sorted(plan.homes.items()) if home == mesh.device]
        self.stages = {stage: self._stage(stage) for stage in mine}
        self.executor = Executor(
            plan.program,
            mesh.device,
            self.stages,
            transport=transport,
            boundary=Boundary(plan.model.hidden, plan.dtype, device),
            clock=clock_of(device),
        )
        self.optimizer = make_optimizer(adam, self.weights.values())
        self._reduction = Reduction(mesh, self.weights)
        rows = last_gradient_rows(plan.schedule, self.weights)
        if mesh.replicas > 1:
            starts = {row: partial(self._reduction.start, stage) for row, stage in rows.items()}
            self.executor.after |= starts

    @property
    def weights(self) -> dict[int, Weights]:
        return {number: stage.weights for number, stage in self.stages.items()}

    def step(self, batch: Sequence[Microbatch], rate: float) -> Outcome:
        """Train on one global batch, of which `batch` is this replica's part."""
        outcome = self.gradients(batch)
        self._refuse_broken(outcome)
        factor = clip_factor(outcome.norm, self.adam.clip)
        for weights in self.weights.values():
            if factor < 1:
                weights.grad.mul_(factor)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        for weights in self.weights.values():
            weights.publish()
        return outcome

    def gradients(self, batch: Sequence[Microbatch]) -> Outcome:
        """The gradients of one global batch, complete on every rank, without the update."""
        for weights in self.weights.values():
            weights.grad.zero_()
        labels = self._count(batch)
        losses = self.executor.step(self._feed(batch, labels))
        self._reduction.finish()
        if self.plan.model.tied:
            tie(self.mesh, self.weights)
        total, norm = self._agree(losses)
        return Outcome(total / max(labels, 1), norm, labels)

    def evaluate(self, batches: Iterable[Sequence[Microbatch]]) -> float:
        """The mean loss over some batches, forward only."""
        total, labels = 0.0, 0
        for batch in batches:
            labels += self._count(batch)
            losses = self.executor.evaluate(self._feed(batch, 1))
            total += self._sum_over_all(_summed(losses))
        return total / max(labels, 1)

    def busy_seconds(self) -> float:
        """Time that the ops of the last step took on this device."""
        return self.executor.spans.seconds()

    def peak_bytes(self) -> int:
        """Most memory of this process so far: what the GPU gave out, or what is resident."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return getrusage(RUSAGE_SELF).ru_maxrss * 1024

    def _stage(self, stage: int) -> DecoderStage:
        plan = self.plan
        types = {"dtype": plan.dtype, "main": plan.main}
        weights = Weights.empty(plan.sizes(stage), **types, device=self.device)
        length = max(sum(lengths) for lengths in plan.lengths)
        return DecoderStage(plan.model, plan.split[stage], weights, length)

    def _feed(self, batch: Sequence[Microbatch], labels: int) -> list[Piece]:
        scale = 1 / max(labels, 1)
        return feed(self.plan, batch, scale=scale, device=self.device)

    def _count(self, batch: Sequence[Microbatch]) -> int:
        """Labels that count in the global batch."""
        count = torch.tensor(sum(microbatch.valid for microbatch in batch))
        add_up(count, self.mesh.copies)
        return int(count)

    def _agree(self, losses: Sequence[Tensor]) -> tuple[float, float]:
        """The sum of all losses and the norm of the whole gradient, the same on every rank."""
        copies = {HEAD} if self.plan.model.tied else set()
        found = squares(self.plan.names, self.weights.values(), copies)
        if self.mesh.replica > 0:
            found.zero_()  # every replica holds the same sums: they count once
        vector = torch.cat((_summed(losses).reshape(1), found))
        add_up(vector, self.mesh.world)
        total, *parts = vector.tolist()
        return total, sqrt(sum(parts))

    def _sum_over_all(self, value: Tensor) -> float:
        add_up(value, self.mesh.world)
        return float(value)

    def _refuse_broken(self, outcome: Outcome) -> None:
        if not (isfinite(outcome.loss) and isfinite(outcome.norm)):
            raise RunError(
                f"the loss is {outcome.loss} and the norm of the gradient {outcome.norm}",
                hint="lower the learning rate or clip the gradient; the weights are those before "
                "this step",
            )


def _summed(losses: Sequence[Tensor]) -> Tensor:
    """The sum on the host, in lane order; zero on devices that meet no loss."""
    total = torch.zeros((), dtype=torch.float64)
    for loss in losses:
        total += loss.cpu()
    return total

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

from penstock.arch.parameters import HEAD
from penstock.data.batch import Microbatch
from penstock.errors import RunError
from penstock.model.stages.piece import Piece
from penstock.run.comm.collective import add_up
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.transport import Transport
from penstock.run.execute.executor import Boundary, Executor
from penstock.run.execute.spans import clock_of
from penstock.run.program.feed import feed
from penstock.run.program.plan import RunPlan
from penstock.run.step.optimizer import AdamW, clip_factor, make_optimizer, squares
from penstock.run.step.reduction import Reduction, last_gradient_rows, tie
from penstock.run.step.stages import empty_weights, stage_of, weightless_stages
from penstock.run.watchdog.position import Tracker


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
        self.stages = {stage: stage_of(plan, stage, device) for stage in mine}
        self.weights = {stage: empty_weights(plan, stage, device) for stage in mine}
        self.executor = Executor(
            plan.program,
            mesh.device,
            {**weightless_stages(plan, device), **self.stages},
            self.weights,
            transport=transport,
            boundary=Boundary(plan.widths, plan.dtype, device),
            clock=clock_of(device),
        )
        self.optimizer = make_optimizer(adam, self.weights.values())
        self._reduction = Reduction(mesh, self.weights)
        rows = last_gradient_rows(plan.schedule, self.weights)
        if mesh.replicas > 1:
            starts = {row: partial(self._reduction.start, stage) for row, stage in rows.items()}
            self.executor.after |= starts
        self.tracker = Tracker()
        """Told where this rank is beside its lane; nobody asks this one."""

    def tell(self, tracker: Tracker) -> None:
        """Keep a tracker up to date from here on."""
        tracker.follow(self.executor.lane, self.mesh.ranks_of(self.mesh.replica).__getitem__)
        self.executor.observer = self.tracker = tracker

    def step(self, batch: Sequence[Microbatch], rate: float) -> Outcome:
        """Train on one global batch, of which `batch` is this replica's part."""
        outcome = self.gradients(batch)
        self._refuse_broken(outcome)
        self.tracker.at = "updates its weights"
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
        self.tracker.at = "ends its step"
        with self.tracker.gathers("add up their gradients"):
            self._reduction.finish()
            if self.plan.model.tied:
                tie(self.mesh, self.weights)
            self._wait_for_device()
        total, norm = self._agree(losses)
        return Outcome(total / max(labels, 1), norm, labels)

    def evaluate(self, batches: Iterable[Sequence[Microbatch]]) -> float:
        """The mean loss over some batches, forward only."""
        total, labels = 0.0, 0
        for batch in batches:
            labels += self._count(batch)
            losses = self.executor.evaluate(self._feed(batch, 1))
            self.tracker.at = "evaluates"
            with self.tracker.gathers("evaluate"):
                total += self._sum_over_all(_summed(losses))
        _refuse_unlabelled("the evaluation", labels)
        return total / labels

    def busy_seconds(self) -> float:
        """Time that the ops of the last step took on this device."""
        return self.executor.spans.seconds()

    def lane_seconds(self) -> float:
        """Time from the start of the last step's first op on this device to the end of its last."""
        return self.executor.spans.extent()

    def peak_bytes(self) -> int:
        """Most memory of this process so far: what the GPU gave out, or what is resident."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return getrusage(RUSAGE_SELF).ru_maxrss * 1024

    def _feed(self, batch: Sequence[Microbatch], labels: int) -> list[Piece]:
        scale = 1 / max(labels, 1)
        return feed(self.plan, batch, scale=scale, device=self.device)

    def _count(self, batch: Sequence[Microbatch]) -> int:
        """Labels that count in the global batch."""
        count = torch.tensor(sum(microbatch.valid for microbatch in batch))
        with self.tracker.gathers("count their labels"):
            add_up(count, self.mesh.copies)
        return int(count)

    def _agree(self, losses: Sequence[Tensor]) -> tuple[float, float]:
        """The sum of all losses and the norm of the whole gradient, the same on every rank."""
        copies = {HEAD} if self.plan.model.tied else set()
        found = squares(self.plan.names, self.weights.values(), copies)
        if self.mesh.replica > 0:
            found.zero_()  # every replica holds the same sums: they count once
        vector = torch.cat((_summed(losses).reshape(1), found))
        with self.tracker.gathers("add up the loss and the norm"):
            add_up(vector, self.mesh.world)
        total, *parts = vector.tolist()
        return total, sqrt(sum(parts))

    def _sum_over_all(self, value: Tensor) -> float:
        add_up(value, self.mesh.world)
        return float(value)

    def _wait_for_device(self) -> None:
        """Let a GPU catch up: it may wait for other ranks long after the host has gone on."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _refuse_broken(self, outcome: Outcome) -> None:
        _refuse_unlabelled("the global batch", outcome.labels)
        if not (isfinite(outcome.loss) and isfinite(outcome.norm)):
            raise RunError(
                f"the loss is {outcome.loss} and the norm of the gradient {outcome.norm}",
                hint="lower the learning rate or clip the gradient; the weights are those before "
                "this step",
            )


def _refuse_unlabelled(what: str, labels: int) -> None:
    """A mean over nothing is no loss, and an update by it would still let the weights decay."""
    if not labels:
        raise RunError(
            f"no label of {what} counts, so it has no loss",
            hint="documents of a single token have nothing to predict, and labels that are all "
            "masked neither: leave such documents out, or take larger batches",
        )


def _summed(losses: Sequence[Tensor]) -> Tensor:
    """The sum on the host, in lane order; zero on devices that meet no loss."""
    total = torch.zeros((), dtype=torch.float64)
    for loss in losses:
        total += loss.cpu()
    return total

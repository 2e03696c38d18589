"""A pipeline of plain modules, in a training loop that somebody else has written.

A trainer that is already written has its model, its data and its optimizer. What it lacks is the
pipeline: who computes which stage when, and what moves between ranks. So this is given the stages
as modules and a batch as tensors, and it leaves gradients in `.grad`, as a backward of the whole
model would. Everything else stays with the loop.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from penstock.core.schedule import Schedule
from penstock.errors import RunError
from penstock.model.attention.piece import Piece
from penstock.model.stages.module_stage import Loss
from penstock.run.comm.collective import add_up
from penstock.run.comm.mesh import make_mesh
from penstock.run.execute.executor import Executor
from penstock.run.program.plain_modules import module_homes, module_program
from penstock.run.step.agreement import odd_ranks
from penstock.run.step.loop_watch import LoopWatch
from penstock.run.step.module_batch import (
    ModuleBatch,
    Weight,
    pieces_of_batch,
    read_batch,
    shares_of_loss,
    weigh_loss,
)
from penstock.run.step.module_executors import ModuleExecutors, RankModules
from penstock.run.step.module_gradients import (
    SharedGradients,
    StageWeight,
    Ties,
    shared_weights,
)
from penstock.run.step.module_mistakes import (
    device_of,
    on_every_rank,
    other_numbers,
    ready_for,
    refuse_hostless,
    refuse_unreached,
)

STUCK = 600.0
"""Seconds for which a rank may stay at one place while others wait for it."""

CLIP_EPSILON = 1e-6
"""What torch adds to a norm that it divides by."""


class ModulePipeline:
    """The stages of one rank, and steps over batches.

    Every rank of torch.distributed makes one, with the same schedule. Ranks are dealt replica by
    replica: with 4 devices, rank 5 is device 1 of replica 1.
    """

    patience: float = STUCK
    """Seconds after which a rank that others wait for is given up; read at the first step."""

    def __init__(
        self,
        schedule: Schedule,
        stages: Sequence[Module] | Callable[[int], Module],
        loss: Loss,
        *,
        weight: Weight | None = None,
        tied: Sequence[Sequence[str]] = (),
        replicas: int = 1,
    ) -> None:
        """`stages` are the modules of all stages, of which this rank keeps its own, or a function
        that makes the module of a stage. `loss` takes the output of the last stage and the targets
        of a microbatch and returns one number; the loss of a batch is the mean over microbatches,
        or, with a `weight` of the targets, the mean in which each counts so much. `tied` has the
        names of parameters that are one, as ("0.embedding.weight", "3.head.weight"); parameters
        that stand in several modules of a list are found.
        """
        listed = () if callable(stages) else tuple(stages)
        homes = module_homes(schedule, None if callable(stages) else len(listed))
        self.schedule, self.loss = schedule, loss
        self.mesh = make_mesh(replicas, schedule.shape.devices)
        refuse_hostless(self.mesh)
        make = stages if callable(stages) else listed.__getitem__
        mine = [stage for stage, home in enumerate(homes) if home == self.mesh.device]
        self.stages: dict[int, Module] = {stage: make(stage) for stage in mine}
        """The modules of this rank, by the number of their stage."""
        on_every_rank(self.mesh, lambda: ready_for(schedule, [*self.stages.values()]))
        self.device = device_of([*self.stages.values()])
        named = (tuple(map(StageWeight.named, names)) for names in tied)
        self.ties: Ties = (*shared_weights(listed), *named)
        """Weights of several stages that are one."""
        self._agree(
            "schedule",
            sha256(f"{schedule.digest} {self.ties}".encode()).hexdigest(),
            "give every rank the same schedule and the same tied weights",
        )
        self._weight = weight
        self._gradients = SharedGradients(self.mesh, self.stages, homes, self.ties)
        on_every_rank(self.mesh, self._gradients.refuse_unknown)
        self._gradients.refuse_unlike()
        self._gradients.give_values()
        own = RankModules(self.mesh, homes, self.stages, weigh_loss(loss), self.device)
        self._executors = ModuleExecutors(module_program(schedule), own)
        self._watch: LoopWatch | None = None
        self._reached = False
        """Whether gradients are known to reach every stage."""

    @property
    def replica(self) -> int:
        """Which replica this rank belongs to: replicas are given different batches."""
        return self.mesh.replica

    def parameters(self) -> Iterator[Parameter]:
        """The parameters of this rank, for an optimizer."""
        yield from self._gradients.parameters()

    def step(self, *batch: Any, **keywords: Any) -> float:
        """Add the gradients of a batch to `.grad` of this rank's parameters; returns the loss.

        A batch is inputs and targets, each a tensor, or tensors in tuples and dictionaries; it may
        be given as a pair. Every rank of a replica gives the same batch. It is cut along its first
        axis into microbatches of equal size. Keywords are cut in the same way, and every stage is
        given them: masks, positions. The loss is the same on every rank.
        """
        with self._followed().step():
            executor, pieces = self._prepared(batch, keywords)
            with self._gradients.of_one_step():
                losses = executor.step(pieces)
            if not self._reached:
                refuse_unreached(self._executors.stages, self.mesh)
                self._reached = True
            return self._sum(losses)

    def evaluate(self, *batch: Any, **keywords: Any) -> float:
        """The loss of a batch, forward only, without gradients."""
        with self._followed().step():
            executor, pieces = self._prepared(batch, keywords)
            return self._sum(executor.evaluate(pieces))

    @torch.no_grad()
    def clip_grad_norm(self, most: float) -> float:
        """Scale the gradients of all stages so that their norm is at most this, by the factor that
        `torch.nn.utils.clip_grad_norm_` takes; returns the norm that they had. What stages share
        counts once."""
        with self._followed().gathers("add up the norm"):
            norm = self._gradients.norm()
        factor = most / (norm + CLIP_EPSILON)
        if factor < 1:
            for weight in self.parameters():
                if weight.grad is not None:
                    weight.grad.mul_(factor)
        return norm

    def close(self) -> None:
        """End what works at the side; no step can follow."""
        if self._watch is not None:
            self._watch.close()
        self._executors.close()

    def _followed(self) -> LoopWatch:
        """The watch, which begins with the first step."""
        if self._watch is None:
            self._watch = LoopWatch(self.mesh, self.patience)
        return self._watch

    def shares_of(
        self, given: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[ModuleBatch, list[float]]:
        """A batch, and what the losses of its pieces are multiplied with; asked by all ranks."""
        slices = self.schedule.shape.slices
        batch = read_batch(given, keywords, len(slices))
        self._agree_on_batch(batch)
        return batch, shares_of_loss(batch, slices, self._weight, self.mesh)

    def _prepared(
        self, given: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[Executor, list[Piece]]:
        """The executor for batches of this size, and the pieces of this one."""
        batch, shares = self.shares_of(given, keywords)
        placed = batch.on(self.device)
        pieces = pieces_of_batch(placed, self.schedule.shape.slices, shares)
        executor = self._executors.take(batch.words, placed)
        self._followed().follow(executor)
        return executor, pieces

    def _agree_on_batch(self, batch: ModuleBatch) -> None:
        """Refuse batches that differ from rank to rank: in their sizes, and the first one of a size
        in its numbers as well."""
        words = batch.words
        hint = f"give every rank the same batch; this rank has {words}"
        self._agree("batch", sha256(words.encode()).hexdigest(), hint)
        if words not in self._executors and (other := other_numbers(batch, self.mesh)):
            raise RunError(
                f"devices {', '.join(map(str, other))} of replica {self.mesh.replica} have a batch "
                "of the same size as device 0, but with other numbers in it",
                hint="all ranks of a replica load the same batch: give their samplers one seed, "
                "and `pipeline.replica` as the number of the share",
            )

    def _sum(self, losses: Sequence[Tensor]) -> float:
        """The losses of all pieces, which the rank of the last stage tells the others."""
        total = torch.zeros(1, dtype=torch.float64)
        for loss in losses:
            total += loss.detach().double().cpu()
        add_up(total, self.mesh.world)
        return float(total)

    def _agree(self, what: str, signature: str, hint: str) -> None:
        if odd := odd_ranks(signature, self.mesh):
            raise RunError(
                f"ranks {', '.join(map(str, odd))} have another {what} than rank 0", hint=hint
            )

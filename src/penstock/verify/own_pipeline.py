"""Any pipeline of modules compared with one process, in the loop that trains it.

The ranks take a step of their schedule, and rank 0 does the same the plain way: all modules one
behind the other, microbatch by microbatch, with nothing but autograd. Modules are put into their
mode for evaluation meanwhile, because dropout would draw other numbers; gradients and modes are
then as they were.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import distributed
from torch.nn import Module

from penstock.model.decoders.slice_interface import give_back_registry
from penstock.model.stages.value_tree import cut
from penstock.plan.slices import even
from penstock.verify.compare import Difference, HeldGradient, Tolerance, difference
from penstock.verify.oracle import Answer

if TYPE_CHECKING:
    from penstock.run.step.module_pipeline import ModulePipeline

NEAR_PIPELINE = {torch.float64: Tolerance(1e-10, 1e-10), torch.float32: Tolerance(1e-5, 1e-5)}
"""How far a pipeline may be from one process; types of 16 bits are rounded coarsely."""
COARSE_PIPELINE = Tolerance(1e-2, 8e-2)


class PipelineVerdict(NamedTuple):
    """How far a pipeline of modules is from one process."""

    name: str
    """Of the schedule."""
    difference: Difference
    tolerance: Tolerance

    @property
    def equal(self) -> bool:
        return self.difference.within(self.tolerance)

    def __str__(self) -> str:
        if not self.equal:
            return f"{self.name}: NOT equal: {'; '.join(self.difference.beyond(self.tolerance))}"
        return (
            f"{self.name}: equal to one process, loss error {self.difference.loss:.0e}, gradient "
            f"error {self.difference.gradient:.0e} ({self.difference.parameter})"
        )


class _RankPart(NamedTuple):
    """What a rank tells rank 0."""

    replica: int
    device: int
    batch: Any
    shares: Sequence[float]
    modules: Mapping[int, Module]
    held: Sequence[HeldGradient]


def verify(pipeline: "ModulePipeline", *batch: Any, **keywords: Any) -> PipelineVerdict:
    """Compare loss and gradients of a batch with one process; asked by all ranks, as a step is.

    Rank 0 needs memory for the modules of all stages.
    """
    with _as_it_was(pipeline):
        loss = pipeline.step(*batch, **keywords)
        part = _own_part(pipeline, batch, keywords)
        told: list[Any] = [part]
        mesh = pipeline.mesh
        if mesh.world is not None:
            told = [None] * mesh.grid.ranks
            distributed.gather_object(part, told if mesh.rank == 0 else None, group=mesh.world)
        found = [_judged(pipeline, loss, told) if mesh.rank == 0 else None]
        if mesh.world is not None:
            distributed.broadcast_object_list(found, src=0, group=mesh.world)
    assert found[0] is not None  # rank 0 has told it
    return found[0]


@contextmanager
def _as_it_was(pipeline: "ModulePipeline") -> Iterator[None]:
    """Modules without dropout and without gradients in the block, and as they were behind it."""
    weights = [*pipeline.parameters()]
    gradients = [weight.grad for weight in weights]
    modules = [inner for stage in pipeline.stages.values() for inner in stage.modules()]
    training = [module.training for module in modules]
    for weight in weights:
        weight.grad = None
    for stage in pipeline.stages.values():
        stage.eval()
    try:
        yield
    finally:
        for weight, gradient in zip(weights, gradients):
            weight.grad = gradient
        for module, before in zip(modules, training):
            module.training = before


def _own_part(pipeline: "ModulePipeline", given: Sequence[Any], keywords: Any) -> _RankPart:
    mesh, (batch, shares) = pipeline.mesh, pipeline.shares_of(given, keywords)
    held = [
        HeldGradient(f"{stage}.{name}", weight.grad.cpu())
        for stage, module in pipeline.stages.items()
        for name, weight in module.named_parameters()
        if weight.grad is not None
    ]
    counts = not mesh.replica
    modules = {n: deepcopy(m).cpu() for n, m in pipeline.stages.items()} if counts else {}
    host = batch.on(torch.device("cpu")) if not mesh.device else None
    return _RankPart(mesh.replica, mesh.device, host, shares, modules, held)


def _judged(pipeline: "ModulePipeline", loss: float, parts: Sequence[_RankPart]) -> PipelineVerdict:
    modules = {number: module for part in parts for number, module in part.modules.items()}
    right = _in_one_process(pipeline, [modules[n] for n in sorted(modules)], parts)
    held = [gradient for part in parts for gradient in part.held]
    dtype = next(iter(right.gradients.values())).dtype
    found = difference(loss, held, right)
    return PipelineVerdict(pipeline.schedule.name, found, NEAR_PIPELINE.get(dtype, COARSE_PIPELINE))


def _in_one_process(
    pipeline: "ModulePipeline", modules: Sequence[Module], parts: Sequence[_RankPart]
) -> Answer:
    """Loss and gradients of all replicas' batches, the plain way."""
    total = 0.0
    for module in modules:
        give_back_registry(module)
        module.to(pipeline.device).zero_grad(set_to_none=True)
    for part in parts:
        if part.batch is not None:
            total += _one_batch(pipeline, modules, part)
    named = {
        f"{number}.{name}": weight.grad.cpu()
        for number, module in enumerate(modules)
        for name, weight in module.named_parameters()
        if weight.grad is not None
    }
    for tie in pipeline.ties:
        names = [f"{each.stage}.{each.name}" for each in tie]
        there = [named[name] for name in names if name in named]
        if there:
            named |= dict.fromkeys(names, sum(there[1:], start=there[0]))
    return Answer(total, named)


def _one_batch(pipeline: "ModulePipeline", modules: Sequence[Module], part: _RankPart) -> float:
    count = pipeline.schedule.shape.microbatches
    placed = part.batch.on(pipeline.device)
    cuts = [cut(each, count) for each in placed[:2]]
    beside = cut(placed.keywords, count) if placed.keywords else [{}] * count
    shares, total = iter(part.shares), 0.0
    for mb, (x, targets) in enumerate(zip(*cuts)):
        for module in modules:
            x = module(x, **beside[mb])
        loss = torch.zeros((), dtype=torch.float64, device=pipeline.device)
        for out, wanted in _slices(x, targets, pipeline.schedule.shape.slices[mb]):
            if share := next(shares):
                loss = loss + pipeline.loss(out, wanted) * share
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total


def _slices(out: Any, targets: Any, count: int) -> Iterator[tuple[Any, Any]]:
    """Output and targets of a microbatch, or of its slices."""
    if count == 1:
        yield out, targets
        return
    start = 0
    for tokens in even(targets.shape[1], count):
        yield out[:, start : start + tokens], targets[:, start : start + tokens]
        start += tokens

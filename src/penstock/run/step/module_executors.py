"""Executors of a pipeline of modules: one for each size of batch that it has met."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch.nn import Module

from penstock.core.program import Program
from penstock.model.decoders.sliced_stage import SlicedStage
from penstock.model.stages.module_stage import Loss, ModuleStage
from penstock.model.stages.value_tree import ONE_TENSOR, Form, cut
from penstock.run.comm.mesh import Mesh
from penstock.run.execute.boundary import AnyBoundary, Between, Boundary
from penstock.run.execute.executor import Executor, by_stage
from penstock.run.step.build import transport_for
from penstock.run.step.module_batch import ModuleBatch, WeighedTarget
from penstock.run.step.trial_forward import TrialEntry, try_stages

WorkingStages = dict[int, ModuleStage]


class RankModules(NamedTuple):
    """The modules of one rank, and where they stand."""

    mesh: Mesh
    homes: tuple[int, ...]
    """The device of each stage."""
    modules: Mapping[int, Module]
    loss: Loss
    """Of the last stage."""
    device: torch.device


class ModuleExecutors:
    """Makes and keeps the executors of one rank."""

    def __init__(self, program: Program, own: RankModules) -> None:
        self._program, self._own = program, own
        self._kept: dict[str, tuple[Executor, WorkingStages]] = {}
        self.stages: WorkingStages = {}
        """Those of the executor that was taken last."""
        self._transport = transport_for(own.mesh, own.device)
        self._transport.open(program.channels)

    def __contains__(self, words: str) -> bool:
        """Whether batches of these sizes have come before."""
        return words in self._kept

    def take(self, words: str, batch: ModuleBatch) -> Executor:
        """The executor for batches of these sizes, whose stages get the keywords of this one."""
        count = self._program.schedule.shape.microbatches
        keywords = cut(batch.keywords, count) if batch.keywords else []
        if words not in self._kept:
            self._kept[words] = self._made(batch)
        executor, self.stages = self._kept[words]
        for stage in self.stages.values():
            stage.keywords = keywords
        return executor

    def close(self) -> None:
        """End what works at the side."""
        for executor, _ in self._kept.values():
            executor.close()
        self._transport.close()

    def _made(self, batch: ModuleBatch) -> tuple[Executor, WorkingStages]:
        own = self._own
        forms = self._tried(batch)
        stages = {number: self._stage(number, forms) for number in own.modules}
        executor = Executor(
            self._program,
            own.mesh.device,
            by_stage(stages),
            transport=self._transport,
            boundary=self._boundary(forms),
        )
        return executor, stages

    def _tried(self, batch: ModuleBatch) -> tuple[Form, ...]:
        """What each stage but the last gives for a whole microbatch."""
        own, count = self._own, self._program.schedule.shape.microbatches
        inputs, targets, keywords = (cut(each, count)[0] for each in batch)
        entry = TrialEntry(inputs, WeighedTarget(targets, 1.0), keywords)
        plain = {
            number: ModuleStage(module, self._loss(number))
            for number, module in own.modules.items()
        }
        return try_stages(plain, own.homes, own.mesh, entry, own.device)

    def _stage(self, number: int, forms: Sequence[Form]) -> ModuleStage:
        made = SlicedStage if self._sliced else ModuleStage
        taken = forms[number - 1] if number else ONE_TENSOR
        given = forms[number] if number < len(forms) else ONE_TENSOR
        return made(self._own.modules[number], self._loss(number), taken=taken, given=given)

    def _loss(self, number: int) -> Loss | None:
        return self._own.loss if number == len(self._own.homes) - 1 else None

    @property
    def _sliced(self) -> bool:
        return max(self._program.schedule.shape.slices) > 1

    def _boundary(self, forms: Sequence[Form]) -> Between:
        """What moves between stages: as it was tried, or slices of it."""
        parameters = (p for module in self._own.modules.values() for p in module.parameters())
        dtype = next((p.dtype for p in parameters), torch.get_default_dtype())
        if self._sliced:
            widths = tuple(int(form.moved.shape[-1]) for form in forms)
            return Boundary(widths, forms[0].moved.dtype if forms else dtype, self._own.device)
        patterns = tuple(form.moved for form in forms)
        gradients = tuple(form.gradient.moved for form in forms)
        return AnyBoundary(patterns, gradients, dtype, self._own.device)

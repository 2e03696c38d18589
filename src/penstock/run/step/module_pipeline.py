"""A pipeline of plain modules, in a training loop that somebody else has written.

A trainer that is already written has its model, its data and its optimizer. What it lacks is the
pipeline: who computes which stage when, and what moves between ranks. So this is given the stages
as modules and a batch as tensors, and it leaves gradients in `.grad`, as a backward of the whole
model would. Everything else stays with the loop.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256

import torch
from torch import Tensor, distributed
from torch.nn import Module, Parameter

from penstock.core.schedule import Schedule
from penstock.errors import RunError
from penstock.model.attention.piece import Piece
from penstock.model.stages.module_stage import Loss, ModuleStage
from penstock.run.comm.collective import add_up
from penstock.run.comm.mesh import Mesh, make_mesh
from penstock.run.execute.boundary import AnyBoundary
from penstock.run.execute.executor import Executor, by_stage
from penstock.run.program.plain_modules import module_homes, module_program
from penstock.run.step.agreement import odd_ranks
from penstock.run.step.build import transport_for
from penstock.run.step.trial_forward import try_stages


class ModulePipeline:
    """The stages of one rank, and steps over batches.

    Every rank of torch.distributed makes one, with the same schedule; rank r is device r.
    """

    def __init__(
        self, schedule: Schedule, stages: Sequence[Module] | Callable[[int], Module], loss: Loss
    ) -> None:
        """`stages` are the modules of all stages, of which this rank keeps its own, or a function
        that makes the module of a stage. `loss` takes the output of the last stage and the targets
        of a microbatch and returns one number; the loss of a batch is the mean over microbatches.
        """
        homes = module_homes(schedule, None if callable(stages) else len(stages))
        self.schedule, self._homes = schedule, homes
        self._mesh = make_mesh(1, schedule.shape.devices)
        make = stages if callable(stages) else stages.__getitem__
        mine = [stage for stage, home in enumerate(homes) if home == self._mesh.device]
        self.stages: dict[int, Module] = {stage: make(stage) for stage in mine}
        """The modules of this rank, by the number of their stage."""
        last = len(homes) - 1
        self._working = {
            stage: ModuleStage(module, loss if stage == last else None)
            for stage, module in self.stages.items()
        }
        self._device = _device_of([*self.stages.values()])
        _refuse_hostless(self._mesh)
        self._agree("schedule", schedule.digest, "give every rank the same schedule")
        self._program = module_program(schedule)
        self._transport = transport_for(self._mesh, self._device)
        self._transport.open(self._program.channels)
        self._executors: dict[str, Executor] = {}

    def parameters(self) -> Iterator[Parameter]:
        """The parameters of this rank, for an optimizer."""
        for module in self.stages.values():
            yield from module.parameters()

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        """Add the gradients of a batch to `.grad` of this rank's parameters; returns the loss.

        Every rank gives the same batch. It is cut along its first axis into microbatches of equal
        size. The loss is the same on every rank.
        """
        executor = self._executor(inputs, targets)
        return self._mean(executor.step(self._pieces(inputs, targets)))

    def evaluate(self, inputs: Tensor, targets: Tensor) -> float:
        """The loss of a batch, forward only, without gradients."""
        executor = self._executor(inputs, targets)
        return self._mean(executor.evaluate(self._pieces(inputs, targets)))

    def close(self) -> None:
        """End what works at the side; no step can follow."""
        for executor in self._executors.values():
            executor.close()
        self._transport.close()

    def _executor(self, inputs: Tensor, targets: Tensor) -> Executor:
        """The executor for batches of this size, which all ranks have."""
        _refuse_uneven(self.schedule.shape.microbatches, inputs, targets)
        sizes = repr([(list(each.shape), each.dtype) for each in (inputs, targets)])
        signature = sha256(sizes.encode()).hexdigest()
        self._agree("batch", signature, f"give every rank the same batch; this rank has {sizes}")
        if signature not in self._executors:
            self._executors[signature] = self._prepare(inputs, targets)
        return self._executors[signature]

    def _prepare(self, inputs: Tensor, targets: Tensor) -> Executor:
        first = self._pieces(inputs, targets)[0]
        entry = (first.tokens, first.labels)
        patterns = try_stages(self._working, self._homes, self._mesh, entry, self._device)
        dtype = next((p.dtype for p in self.parameters()), torch.get_default_dtype())
        return Executor(
            self._program,
            self._mesh.device,
            by_stage(self._working),
            transport=self._transport,
            boundary=AnyBoundary(patterns, dtype, self._device),
        )

    def _pieces(self, inputs: Tensor, targets: Tensor) -> list[Piece]:
        """The microbatches, on the device where they are used."""
        count = self.schedule.shape.microbatches
        if 0 in self.stages:
            inputs = inputs.to(self._device)
        if len(self._homes) - 1 in self.stages:
            targets = targets.to(self._device)
        pairs = zip(inputs.chunk(count), targets.chunk(count))
        return [Piece(mb, 0, 1, 0, 1, 1, *pair, (), 1 / count) for mb, pair in enumerate(pairs)]

    def _mean(self, losses: Sequence[Tensor]) -> float:
        """The mean over microbatches, which the rank of the last stage tells the others."""
        total = torch.zeros((), dtype=torch.float64)
        for loss in losses:
            total += loss.detach().cpu()
        add_up(total, self._mesh.world)
        return float(total) / self.schedule.shape.microbatches

    def _agree(self, what: str, signature: str, hint: str) -> None:
        if odd := odd_ranks(signature, self._mesh):
            raise RunError(
                f"ranks {', '.join(map(str, odd))} have another {what} than rank 0", hint=hint
            )


def _device_of(modules: Sequence[Module]) -> torch.device:
    """Where the parameters of this rank are; on the host where it has none."""
    found = {parameter.device for module in modules for parameter in module.parameters()}
    if len(found) > 1:
        raise RunError(
            f"the modules of this rank are on {', '.join(sorted(map(str, found)))}",
            hint="move all modules of a rank to one device",
        )
    return found.pop() if found else torch.device("cpu")


def _refuse_hostless(mesh: Mesh) -> None:
    """Ranks agree on what they do by way of the host."""
    if mesh.world is not None and "cpu:" not in str(distributed.get_backend_config(mesh.world)):
        raise RunError(
            f"the process group has no back end for the host, only "
            f"{distributed.get_backend_config(mesh.world)}",
            hint='start it with torch.distributed.init_process_group("cpu:gloo,cuda:nccl")',
        )


def _refuse_uneven(microbatches: int, inputs: Tensor, targets: Tensor) -> None:
    rows = [int(each.shape[0]) if each.dim() else 0 for each in (inputs, targets)]
    if rows[0] != rows[1] or rows[0] == 0 or rows[0] % microbatches:
        raise RunError(
            f"a batch of {rows[0]} inputs and {rows[1]} targets cannot be cut into {microbatches} "
            "microbatches of equal size",
            hint=f"give as many targets as inputs, a multiple of {microbatches}",
        )

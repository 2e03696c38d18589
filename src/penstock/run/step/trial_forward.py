"""What moves between modules that nobody has described: each is tried out once.

Memory for a transfer is made before it comes, so every rank has to know the sizes of what all
stages give. A stage is tried by the rank that holds it, with one microbatch of zeros (the first
with a real one, for its numbers may be tokens), and what comes out is told to all. The module is
left as it was: no gradient, the same random numbers, the same buffers. A stage that fails or gives
something that cannot be moved is named on every rank, before anything else runs.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, distributed
from torch.nn import Module

from penstock.errors import RunError
from penstock.model.stages.module_stage import ModuleStage
from penstock.run.comm.mesh import Mesh


class StageOutput(NamedTuple):
    """What a stage gave, in words that every rank understands."""

    size: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    wrong: str = ""
    """Why this cannot be, or nothing."""

    def pattern(self, device: torch.device) -> Tensor:
        """One element that looks like the whole."""
        return torch.empty((), dtype=self.dtype, device=device).expand(self.size)


def try_stages(
    stages: Mapping[int, ModuleStage],
    homes: tuple[int, ...],
    mesh: Mesh,
    entry: tuple[Tensor, Tensor],
    device: torch.device,
) -> tuple[Tensor, ...]:
    """A pattern of what each stage but the last gives for the inputs and targets of `entry`."""
    x, targets = entry
    patterns: list[Tensor] = []
    for number, home in enumerate(homes):
        output, failure = StageOutput(), None
        if home == mesh.device:
            output, failure = _tried(stages[number], x, targets)
        output = _told(output, home, mesh)
        if output.wrong:
            raise _refusal(number, output) from failure
        patterns.append(output.pattern(device))
        x = torch.zeros_like(patterns[-1])
    return tuple(patterns[:-1])


def _refusal(number: int, output: StageOutput) -> RunError:
    return RunError(
        f"stage {number} {output.wrong}",
        hint="a stage takes what the stage before it gives, and gives one tensor of real numbers; "
        "the loss makes one number of the last output and the targets",
    )


def _tried(stage: ModuleStage, x: Tensor, targets: Tensor) -> tuple[StageOutput, Exception | None]:
    """What a stage gives, and what it raised."""

    def work() -> Tensor:
        out: Tensor = stage.module(x)
        return out if stage.loss is None or _fault(out) else stage.loss(out, targets)

    try:
        out = _unchanged(stage.module, work, x.device)
    except Exception as error:
        return StageOutput(wrong=f"raised {type(error).__name__}: {error}"), error
    fault = _fault(out) or (_loss_fault(out) if stage.loss is not None else "")
    return (StageOutput(wrong=fault) if fault else StageOutput(tuple(out.shape), out.dtype)), None


def _fault(out: object) -> str:
    if not isinstance(out, Tensor):
        return f"gives a {type(out).__name__} instead of a tensor"
    return "" if out.is_floating_point() else f"gives a tensor of {out.dtype}"


def _loss_fault(out: Tensor) -> str:
    return f"has a loss of the size {list(out.shape)} instead of one number" if out.dim() else ""


def _unchanged(module: Module, work: Callable[[], Tensor], device: torch.device) -> Tensor:
    """The result of some work with a module, which is then as it was."""
    before = [buffer.clone() for buffer in module.buffers()]
    cuda = [device] if device.type == "cuda" else []
    try:
        with torch.no_grad(), torch.random.fork_rng(cuda):
            return work()
    finally:
        with torch.no_grad():
            for buffer, value in zip(module.buffers(), before):
                buffer.copy_(value)


def _told(output: StageOutput, home: int, mesh: Mesh) -> StageOutput:
    """What the rank that holds a stage says of it, on every rank."""
    if mesh.world is None:
        return output
    box = [output]
    distributed.broadcast_object_list(box, src=home, group=mesh.world)
    return box[0]

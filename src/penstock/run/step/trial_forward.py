"""What moves between modules that nobody has described: each is tried out once.

Memory for a transfer is made before it comes, so every rank has to know the sizes of what all
stages give. A stage is tried by the rank that holds it, with one microbatch of zeros (the first
with a real one, for its numbers may be tokens), and what comes out is told to all. The module is
left as it was: no gradient, the same random numbers, the same buffers. A stage that fails or gives
something that cannot be moved is named on every rank, before anything else runs.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed
from torch.nn import Module

from penstock.errors import RunError
from penstock.model.stages.module_stage import ModuleStage
from penstock.model.stages.value_tree import Form, differentiable, leaves, words_of
from penstock.run.comm.mesh import Mesh

TOLD_ON = torch.device("cpu")


class TrialEntry(NamedTuple):
    """The first microbatch, as the stages that need it get it."""

    inputs: Any
    targets: Any
    keywords: Mapping[str, Any]


class StageOutput(NamedTuple):
    """What a stage gave, in words that every rank understands."""

    form: Form | None = None
    wrong: str = ""
    """Why this cannot be, or nothing."""


def try_stages(
    stages: Mapping[int, ModuleStage],
    homes: tuple[int, ...],
    mesh: Mesh,
    entry: TrialEntry,
    device: torch.device,
) -> tuple[Form, ...]:
    """The form of what each stage but the last gives for the first microbatch."""
    x, forms = entry.inputs, []
    for number, home in enumerate(homes):
        output, failure = StageOutput(), None
        if home == mesh.device:
            output, failure = _tried(stages[number], x, entry)
        output = _told(output, home, mesh)
        if output.wrong or output.form is None:
            raise _refusal(number, output) from failure
        forms.append(output.form.on(device))
        x = forms[-1].zeros()
    return tuple(forms[:-1])


def _refusal(number: int, output: StageOutput) -> RunError:
    return RunError(
        f"stage {number} {output.wrong}",
        hint="a stage takes what the stage before it gives, and gives tensors of which one or more "
        "hold real numbers; the loss makes one number of the last output and the targets",
    )


_IN_PLACE = (
    "changes its input in place, which its backward and the stage before need as it was: write "
    "x = x + y for x += y, or x.clone() first"
)


def _tried(stage: ModuleStage, x: Any, entry: TrialEntry) -> tuple[StageOutput, Exception | None]:
    """What a stage gives, and what it raised."""

    def work() -> Any:
        out = stage.module(x, **entry.keywords)
        return out if stage.loss is None or _fault(out) else stage.loss(out, entry.targets)

    given = [leaf for leaf in leaves(x) if isinstance(leaf, Tensor) and not leaf.is_inference()]
    versions = [leaf._version for leaf in given]
    try:
        out = _unchanged(stage.module, work, [leaf.device for leaf in leaves(x)])
    except Exception as error:
        wrong = f"raised {type(error).__name__}: {error}"
        return StageOutput(wrong=f"{wrong.rstrip('.')}; it was given {words_of(x)}"), error
    if versions != [leaf._version for leaf in given]:
        return StageOutput(wrong=_IN_PLACE), None
    fault = _fault(out) or (_loss_fault(out) if stage.loss is not None else "")
    return (StageOutput(wrong=fault) if fault else StageOutput(Form.of(out).on(TOLD_ON))), None


def _fault(out: object) -> str:
    """Why what a stage gives cannot be moved."""
    if isinstance(out, Tensor):
        return "" if out.is_floating_point() else f"gives a tensor of {out.dtype}"
    if others := [leaf for leaf in leaves(out) if not isinstance(leaf, Tensor)]:
        inside = "" if others[0] is out else f" inside of its {type(out).__name__}"
        return f"gives a {type(others[0]).__name__}{inside} instead of a tensor"
    return "" if differentiable(out) else f"gives {words_of(out)}, which no gradient can reach"


def _loss_fault(out: Tensor) -> str:
    return f"has a loss of the size {list(out.shape)} instead of one number" if out.dim() else ""


def _unchanged(module: Module, work: Callable[[], Any], devices: list[torch.device]) -> Any:
    """The result of some work with a module, which is then as it was."""
    before = [buffer.clone() for buffer in module.buffers()]
    cuda = list({device for device in devices if device.type == "cuda"})
    try:
        with torch.no_grad(), torch.random.fork_rng(cuda):
            return work()
    finally:
        with torch.no_grad():
            for buffer, value in zip(module.buffers(), before):
                buffer.copy_(value)


def _told(output: StageOutput, home: int, mesh: Mesh) -> StageOutput:
    """What the rank that holds a stage says of it, on every rank of its replica."""
    if mesh.pipeline is None:
        return output
    box = [output]
    distributed.broadcast_object_list(
        box, src=mesh.ranks_of(mesh.replica)[home], group=mesh.pipeline
    )
    return box[0]

"""A pipeline in one call: a schedule by its name, of the size that the ranks and the stages give.

Nothing here needs torch before the call, so that the name can be had without it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.schedules import Spec, build, find

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from penstock.run.step.module_pipeline import ModulePipeline


def pipeline(
    stages: "Sequence[Module] | Callable[[int], Module]",
    schedule: str | Schedule,
    *,
    loss: "Callable[[Any, Any], Tensor]",
    microbatches: int | None = None,
    weight: "Callable[[Any], float | Tensor] | None" = None,
    tied: Sequence[Sequence[str]] = (),
    replicas: int = 1,
) -> "ModulePipeline":
    """A pipeline of this rank's stages, which takes a training step with `.step(inputs, targets)`.

    `stages` has the module of each stage, or makes it from its number. A schedule that is given by
    name has a device for each rank of a replica, as many stages on each as there are modules, and
    `microbatches`; `penstock.build` makes one of any other size. The rest is as in
    `penstock.run.ModulePipeline`.
    """
    from penstock.run.step.module_pipeline import ModulePipeline

    modules = None if callable(stages) else len(stages)
    chosen = schedule
    if not isinstance(chosen, Schedule):
        chosen = _built(find(chosen), microbatches, modules, replicas)
    elif microbatches not in (None, chosen.shape.microbatches):
        raise ShapeError(
            f"microbatches is {microbatches}, but the schedule has {chosen.shape.microbatches}",
            hint="leave microbatches out: the schedule says how many",
        )
    return ModulePipeline(chosen, stages, loss, weight=weight, tied=tied, replicas=replicas)


def _built(spec: Spec, microbatches: int | None, modules: int | None, replicas: int) -> Schedule:
    devices = _devices(replicas)
    if microbatches is None:
        raise ShapeError(
            f"{spec.name} needs a number of microbatches",
            hint=f"give microbatches={2 * devices}, or any number that divides the batch",
        )
    given: dict[str, Any] = {}
    if spec.chunks is None and modules is not None:
        if modules % devices or modules < devices:
            raise ShapeError(
                f"{modules} modules cannot be dealt to {devices} devices",
                hint=f"give a multiple of {devices} modules, or start another number of ranks",
            )
        given["chunks"] = modules // devices
    return build(spec.name, devices=devices, microbatches=microbatches, **given)


def _devices(replicas: int) -> int:
    from torch import distributed

    ranks = distributed.get_world_size() if distributed.is_initialized() else 1
    if replicas < 1 or ranks % replicas:
        raise ShapeError(
            f"{ranks} ranks cannot be {replicas} replicas of a pipeline",
            hint="start torch.distributed before the pipeline is made, with a multiple of replicas",
        )
    return ranks // replicas

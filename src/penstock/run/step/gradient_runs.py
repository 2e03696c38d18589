"""Which stretches of a stage's gradient are added up over which ranks.

All ranks that hold the same weights add up their gradients. Where replicas share the experts of a
layer, an expert's weights are on one of them, and so is the gradient of all tokens that went there:
it is added up over ranks of that replica that share tokens, if there are such.

    parameters   norms router | own experts | norms router | own experts
    over         all copies   | one replica | all copies   | one replica
"""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from torch.distributed import ProcessGroup

from penstock.arch.cell_shape import CellShape
from penstock.arch.parameter_layout import ParameterLayout, ParameterPart
from penstock.errors import RunError
from penstock.run.comm.mesh import Mesh


class GradientRun(NamedTuple):
    """A stretch of the flat buffer, and who adds it up."""

    where: slice
    group: ProcessGroup | None


def gradient_runs(layout: ParameterLayout, mesh: Mesh) -> Iterator[GradientRun]:
    """The whole gradient, in order."""
    for of_replica, parts in groupby(layout.parts.values(), _of_replica):
        found = [*parts]
        group = mesh.token_sharers if of_replica else mesh.copies
        yield GradientRun(slice(found[0].offset, found[-1].stop), group)


def _of_replica(part: ParameterPart) -> bool:
    return part.of_replica


def expert_groups(cell: CellShape, mesh: Mesh) -> list[ProcessGroup | None]:
    """The groups that replicas which share experts need; made on all ranks when asked for."""
    return [mesh.token_sharers, mesh.expert_sharers] if cell.experts > 1 else []


def refuse_shared_experts(replicas: int, experts: int, *, sharded: bool) -> None:
    """Refuse experts that these replicas cannot share, and an optimizer that is shared too."""
    if experts not in (1, replicas):
        raise RunError(
            f"{experts} replicas are to share experts, but there are {replicas}",
            hint=f"set mesh.experts to 1 or to {replicas}",
        )
    if experts > 1 and sharded:
        raise RunError(
            f"{experts} replicas share experts, so that they hold different weights, but ranges of "
            "a stage are to be shared by replicas that hold the same",
            hint='set mesh.shard to "none", or mesh.experts to 1',
        )

"""Which stretches of a stage's gradient are added up over which ranks.

All ranks that hold the same weights add up their gradients. Where replicas share the experts of a
layer, an expert's weights are on one of them, and so is the gradient of all tokens that went there:
it is added up over ranks of that replica that share tokens, if there are such, and over those of
other replicas that have the same experts.

    replicas     0 and 1 share experts, 2 and 3 do
    parameters   norms router | experts of 0 | norms router | experts of 0      (replica 0)
    over         0 1 2 3      | 0 2          | 0 1 2 3      | 0 2
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
    for replicas, parts in groupby(layout.parts.values(), _dealt_over):
        found = [*parts]
        group = mesh.expert_copies(replicas) if replicas > 1 else mesh.copies
        yield GradientRun(slice(found[0].offset, found[-1].stop), group)


def _dealt_over(part: ParameterPart) -> int:
    return part.dealt_over


def expert_groups(cell: CellShape, mesh: Mesh) -> list[ProcessGroup | None]:
    """The groups that replicas which share experts need; made on all ranks when asked for."""
    if cell.experts == 1:
        return []
    return [mesh.expert_copies(cell.experts), mesh.expert_sharers(cell.experts)]


def refuse_shared_experts(replicas: int, experts: int, *, sharded: bool) -> None:
    """Refuse experts that these replicas cannot share, and an optimizer that is shared too."""
    if replicas % experts:
        raise RunError(
            f"{experts} replicas are to share experts, but there are {replicas}",
            hint=f"set mesh.experts to a divisor of {replicas}",
        )
    if experts > 1 and sharded:
        raise RunError(
            f"{experts} replicas share experts, so that they hold different weights, but ranges of "
            "a stage are to be shared by replicas that hold the same",
            hint='set mesh.shard to "none", or mesh.experts to 1',
        )

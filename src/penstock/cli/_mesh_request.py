"""The options that spread each device of a schedule over several ranks."""

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from penstock.arch.mesh_shape import MeshShape

MeshAxes = Annotated[
    str,
    typer.Option(
        metavar="AXIS=N,...",
        show_default=False,
        help="Ranks of each device and replicas: tensor, sequence, ring, replicas; and "
        "norms=replicated, where tensor ranks hold all tokens between blocks.",
    ),
]
SharedState = Annotated[
    Literal["none", "optimizer", "full"],
    typer.Option(help="What ranks that hold the same stage share."),
]


@dataclass(frozen=True, kw_only=True)
class MeshRequest:
    """On how many ranks each device runs."""

    mesh: MeshAxes = ""
    shard: SharedState = "none"

    @property
    def given(self) -> bool:
        return bool(self.mesh) or self.shard != "none"

    @property
    def shape(self) -> MeshShape:
        return MeshShape.parse(self.mesh) if self.mesh else MeshShape()

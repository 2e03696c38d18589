"""What a plan is asked for: a model, a cluster, a batch, and what the user has decided already."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from penstock.arch.config import ModelConfig
from penstock.cluster.cluster import Cluster
from penstock.errors import ShapeError, nearest, shown
from penstock.estimate.layer_sorts import LayerSorts, layer_sorts
from penstock.estimate.layout import BYTES_OF, refuse_shared_tokens
from penstock.estimate.request import values_from
from penstock.planner.model_loads import ModelLoads, model_loads
from penstock.schedules import registry

NEEDED_VALUES = ("model", "cluster", "tokens", "batch_tokens")
KERNELS = ("attention", "fused_norm", "precision")
"""What is not searched but taken as given, or as an estimate takes it."""


@dataclass(frozen=True)
class PlanProblem:
    """What the plans of one search have in common."""

    model: ModelConfig
    cluster: Cluster
    tokens: int
    """Of a sequence."""
    batch_tokens: int
    """Of all sequences of a step."""
    mesh: Mapping[str, int] = field(default_factory=dict)
    """Sizes of axes that the user gave."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Other choices that the user made, by name."""
    norms: str = "scattered"

    def __post_init__(self) -> None:
        self.model.refuse_length(self.tokens)
        self._refuse_layers()
        given = {axis: self.mesh.get(axis, 1) for axis in ("sequence", "tensor")}
        refuse_shared_tokens(self.model, given)
        if self.batch_tokens % self.tokens:
            raise ShapeError(
                f"batch_tokens is {self.batch_tokens:,}, which is not a number of sequences of "
                f"{self.tokens:,} tokens",
                hint=f"give {self.near(self.tokens)}",
            )

    def _refuse_layers(self) -> None:
        counts = self.fixed.get("layers", ())
        if isinstance(counts, tuple) and counts and sum(counts) != self.model.layers:
            raise ShapeError(
                f"stages of {', '.join(map(str, counts))} layers have {sum(counts)} in all, the "
                f"model {self.model.layers}",
                hint="give the layers of each stage along the model, or leave --layers out",
            )

    @cached_property
    def loads(self) -> ModelLoads:
        """What layers, embedding and head take."""
        return model_loads(self.model, self.cluster, self.tokens, self.kernels)

    @property
    def sorts(self) -> LayerSorts:
        """Which of its layers take as long."""
        return layer_sorts(self.model)

    def near(self, piece: int) -> str:
        """Batches next to the one that is asked for that are a multiple of some tokens."""
        less = self.batch_tokens // piece * piece
        return " or ".join(f"{each:,}" for each in (less, less + piece) if each)

    @property
    def sequences(self) -> int:
        """Of a step."""
        return self.batch_tokens // self.tokens

    @property
    def kernels(self) -> dict[str, Any]:
        """Kernels and the type of numbers, as far as they were given."""
        return {name: self.fixed[name] for name in KERNELS if name in self.fixed}

    @property
    def element_bytes(self) -> int:
        return BYTES_OF[self.fixed.get("precision", "bf16")]


def problem_from(row: Mapping[str, Any]) -> PlanProblem:
    """The problem that flags or a row of JSON describe; the names are those of a layout."""
    values = values_from(row, NEEDED_VALUES)
    scattered = values.pop("sequence_parallel_norms", True)
    mesh = dict(values.pop("mesh", ()))
    needed = {name: values.pop(name) for name in NEEDED_VALUES}
    norms = "scattered" if scattered else "replicated"
    if values.get("schedule", "") not in ("", *registry()):
        name = values["schedule"]
        hint = nearest(name[:40], [*registry()])
        raise ShapeError(f"no schedule is called {shown(name, 40)}", hint=hint)
    return PlanProblem(**needed, mesh=mesh, fixed=values, norms=norms)

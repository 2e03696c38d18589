"""What a configuration asks a plan to be for, and what of the plan it has decided itself.

A key that the configuration gives is decided; one that it leaves out is searched. The batch is
decided always: rows x microbatches x replicas, as the configuration has them, are the sequences of
a step, and every plan trains on as many. So what is learnt does not depend on the machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from penstock.arch.config import ModelConfig
from penstock.cluster.profile_file import MeasuredMachine
from penstock.errors import ShapeError
from penstock.estimate.layout import Recompute
from penstock.planner.problem import PlanProblem
from penstock.train.config.auto_plan import CHOSEN
from penstock.train.config.settings import Settings

PRECISION_OF = {"float32": "fp32", "bfloat16": "bf16"}
AXES_OF_PLAN = ("tensor", "sequence", "ring", "replicas")
LEFT_OPEN = {"schedule": CHOSEN, "devices": 0, "chunks": 0}
"""Values that decide nothing."""


@dataclass(frozen=True)
class PlanRequest:
    """What is to be trained by so many ranks."""

    settings: Settings
    model: ModelConfig
    ranks: int
    device: str
    """Where it is computed: cpu or cuda."""

    def __post_init__(self) -> None:
        if self.device == "cpu" and self.settings.run.threads > 1:
            raise ShapeError(
                f"plan.auto measures one thread, but run.threads is {self.settings.run.threads}",
                hint="set run.threads to 1 and start more ranks, or write the plan yourself",
            )

    @property
    def precision(self) -> str:
        return PRECISION_OF[self.settings.run.dtype]

    @property
    def sequences(self) -> int:
        """Of a step, whatever the plan."""
        batch = self.settings.batch
        return batch.rows * batch.microbatches * self.settings.mesh.replicas

    @property
    def axes(self) -> dict[str, int]:
        """Sizes of the mesh that the configuration gives."""
        given = self.settings.mesh.model_fields_set
        sizes = {axis: getattr(self.settings.mesh, axis) for axis in AXES_OF_PLAN if axis in given}
        devices = self.settings.pipeline.devices
        return sizes | ({"pipeline": devices} if devices else {})

    @property
    def decided(self) -> dict[str, Any]:
        """Other choices that the configuration gives, as a plan names them."""
        settings, found = self.settings, dict(self._pipeline())
        if "rows" in settings.batch.model_fields_set:
            found["rows"] = settings.batch.rows
        if "shard" in settings.mesh.model_fields_set:
            found["shard"] = settings.mesh.shard
        return found

    def _pipeline(self) -> Iterator[tuple[str, Any]]:
        pipeline = self.settings.pipeline
        for key in ("schedule", "chunks", "slices", "recompute", "vocabulary", "offload"):
            value = getattr(pipeline, key)
            if key in pipeline.model_fields_set and value != LEFT_OPEN.get(key):
                yield key, _PLANNED.get((key, value), value)
        if pipeline.layers:
            yield "layers", tuple(pipeline.layers)
        if pipeline.options:
            yield "options", tuple(sorted((k, str(v)) for k, v in pipeline.options.items()))

    def problem(self, machine: MeasuredMachine) -> PlanProblem:
        """The problem on a machine that was measured, which has a device for each rank."""
        kernels = machine.kernels
        if kernels.precision != self.precision:
            raise ShapeError(
                f"plan.profile was measured in {kernels.precision}, but run.dtype is "
                f"{self.settings.run.dtype!r}",
                hint=f"profile again with --precision {self.precision}",
            )
        cluster = machine.cluster
        links = replace(cluster.machine, gpus=self.ranks)
        length = self.settings.batch.length
        return PlanProblem(
            self.model,
            replace(cluster, gpus=self.ranks, machine=links),
            length,
            self.sequences * length,
            self.axes,
            self.decided | {"precision": kernels.precision, "fused_norm": kernels.fused},
            self.settings.mesh.norms,
        )

    def record(self) -> dict[str, Any]:
        """All that a plan follows from beside the machine, as a file has it."""
        return {
            "ranks": self.ranks,
            "device": self.device,
            "model": str(self.model),
            "length": self.settings.batch.length,
            "sequences": self.sequences,
            "norms": self.settings.mesh.norms,
            "profile": self.settings.plan.profile,
            "decided": {key: str(value) for key, value in (self.axes | self.decided).items()},
        }


_PLANNED: dict[tuple[str, Any], Any] = {
    ("recompute", "none"): Recompute("none"),
    ("recompute", "all"): Recompute("stages"),
    ("vocabulary", "ends"): False,
    ("vocabulary", "shards"): True,
}
"""Values of keys that a plan calls otherwise."""

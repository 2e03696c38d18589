"""A plan as the tables of a training configuration: what is not part of a plan has its default."""

from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any

from penstock.arch.config import ModelConfig
from penstock.arch.lora import Lora
from penstock.arch.presets import MODELS
from penstock.errors import ShapeError
from penstock.estimate.layout import TrainingLayout

RUN_DTYPES = {"bf16": "bfloat16", "fp32": "float32"}


def configuration(layout: TrainingLayout) -> dict[str, dict[str, Any]]:
    """Section to key to value."""
    if layout.precision not in RUN_DTYPES:
        raise ShapeError(
            f"a run does not compute in {layout.precision}",
            hint=f"plan with --precision {' or '.join(RUN_DTYPES)}",
        )
    if layout.recompute.text not in ("none", "selective", "stages"):
        raise ShapeError(
            f"a run computes whole stages again, but recompute is {layout.recompute.text}",
            hint="plan with --recompute stages",
        )
    mesh = layout.mesh
    return {
        "run": {"dtype": RUN_DTYPES[layout.precision]},
        "model": _model(replace(layout.model, lora=None)),
        **_adapters(layout.model.lora),
        "batch": {
            "length": layout.tokens,
            "rows": layout.rows,
            "microbatches": layout.microbatches,
        },
        "pipeline": _pipeline(layout),
        "mesh": {
            "tensor": mesh.tensor,
            "sequence": mesh.sequence,
            "ring": mesh.ring,
            "replicas": mesh.replicas,
            "norms": mesh.norms,
            "shard": layout.shard,
        },
    }


def _pipeline(layout: TrainingLayout) -> dict[str, Any]:
    options = {"options": dict(layout.options)} if layout.options else {}
    return {
        "schedule": layout.schedule,
        "devices": layout.pipeline,
        "chunks": layout.chunks or 0,
        "slices": layout.slices or 1,
        "layers": [*layout.layers],
        "recompute": "all" if layout.recompute.whole_stages else "none",
        "vocabulary": "shards" if layout.vocabulary else "ends",
        "offload": layout.offload,
        **options,
    }


def _adapters(lora: Lora | None) -> dict[str, Any]:
    """The section of adapters, where only these are trained."""
    if lora is None:
        return {}
    return {"lora": {"rank": lora.rank, "alpha": lora.alpha, "targets": [*lora.targets]}}


def _model(model: ModelConfig) -> dict[str, Any]:
    """A preset by its name, else all numbers that differ from their defaults."""
    for name, preset in MODELS.items():
        if preset == model:
            return {"preset": name}
    every = {each.name: getattr(model, each.name) for each in fields(model) if each.init}
    known = {each.name: each.default for each in fields(model)}
    given = {name: value for name, value in every.items() if value != known[name]}
    given.pop("element_bytes", None)
    return {name: _plain(each) for name, each in given.items()}


def _plain(value: Any) -> Any:
    """A record as a table of what it says, several as a list of tables."""
    if isinstance(value, tuple):
        return [*map(_plain, value)]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return {key: each for key, each in asdict(value).items() if each is not None}

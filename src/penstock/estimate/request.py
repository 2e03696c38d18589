"""A layout as plain values, from a row of JSON or from flags; the names are the same.

A value that is not what its name takes is refused with what it takes, an unknown name with the
nearest known one. Models, clusters and meshes are read once for all rows that name the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from penstock.arch.layer_split import MOST_STAGES, read_counts
from penstock.arch.mesh_shape import LARGEST_OF_MESH, MeshShape, axis_hint, shortest_ring
from penstock.cluster.cluster import Cluster
from penstock.cluster.gpu import ATTENTION_KERNELS, PRECISIONS
from penstock.cluster.profile_file import MeasuredMachine, read_machine
from penstock.cluster.read import read_cluster
from penstock.errors import ShapeError, nearest, shown
from penstock.estimate.adapters import read_lora
from penstock.estimate.balanced_layers import balanced_layers
from penstock.estimate.layout import OFFLOADS, WITHOUT_ATTENTION, Recompute, TrainingLayout
from penstock.estimate.model_value import read_model
from penstock.estimate.plain_values import (
    Reader,
    one_of,
    read_count,
    read_switch,
    read_text,
    whole_number,
)
from penstock.estimate.unequal import with_groups

NEEDED_NAMES = ("model", "cluster", "tokens", "batch_tokens", "schedule")
MESH_NAMES = ("tensor", "sequence", "ring", "pipeline", "replicas")
SPLITS = EVEN, BALANCED = ("even", "balanced")
"""How layers may be dealt to stages, beside counts: as many for all, or as much work."""
RECOMPUTES = ("none", "selective", "all", "stages", WITHOUT_ATTENTION)
SHARDS = ("none", "optimizer", "full")


def layout_from(row: Mapping[str, Any]) -> TrainingLayout:
    """The layout that a row describes; a value of null stands for one that is left out."""
    values = values_from(row, NEEDED_NAMES)
    scattered = values.pop("sequence_parallel_norms", True)
    sizes = dict(values.pop("mesh", ()))
    pipeline, cluster = sizes.pop("pipeline", 1), values["cluster"]
    if "ring" not in sizes:
        sharing = (sizes.get(axis, 1) for axis in ("sequence", "tensor"))
        sizes["ring"] = shortest_ring(values["model"], *sharing)
    mesh = MeshShape(**sizes, norms="scattered" if scattered else "replicated")
    if "replicas" not in sizes:
        mesh = _with_replicas(mesh, pipeline, cluster)
    cut = values.pop("layers", EVEN)
    counts = () if cut in SPLITS else cut
    values = with_groups(values, mesh.replicas)
    layout = TrainingLayout(mesh=mesh, pipeline=pipeline, layers=counts, **values)
    return replace(layout, layers=balanced_layers(layout)) if cut == BALANCED else layout


def values_from(row: Mapping[str, Any], needed: Sequence[str]) -> dict[str, Any]:
    """What a row says, value by value; a mesh as its sizes by name."""
    given = {name: value for name, value in row.items() if value is not None}
    for name in given:
        if name not in _READERS:
            hint = nearest(name[:40], list(_READERS))
            raise ShapeError(f"a layout has no {shown(name[:40])}", hint=hint)
    known = {*given, "cluster"} if "profile" in given else given
    missing = [name for name in needed if name not in known]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ShapeError(
            f"{', '.join(missing)} {verb} missing", hint=f"needed are {', '.join(needed)}"
        )
    values = {name: _READERS[name](name, value) for name, value in given.items()}
    if "lora" in values:
        values["model"] = replace(values["model"], lora=values.pop("lora"))
    return _on_machine(values.pop("profile"), values) if "profile" in values else values


def _on_machine(machine: MeasuredMachine, values: dict[str, Any]) -> dict[str, Any]:
    """A layout on a machine that was profiled, or on a cluster of GPUs like it. Kernels and their
    precision are those that were measured."""
    for name in ("attention", "fused_norm"):
        if name in values:
            raise ShapeError(
                f"{name} is given, but the profile has the kernels that run on its machine",
                hint=f"leave {name} out, or take a cluster without a profile",
            )
    precision = values.get("precision", machine.kernels.precision)
    if precision != machine.kernels.precision:
        raise ShapeError(
            f"precision is {precision}, but {machine.kernels.precision} was profiled",
            hint="leave precision out, or profile again with that precision",
        )
    given = values.get("cluster")
    cluster = machine.cluster if given is None else machine.replaces(given)
    fused = machine.kernels.fused
    return values | {"cluster": cluster, "precision": precision, "fused_norm": fused}


def _with_replicas(mesh: MeshShape, pipeline: int, cluster: Cluster) -> MeshShape:
    """As many replicas as there are GPUs for."""
    inside = mesh.ranks(pipeline)
    if cluster.gpus % inside:
        raise ShapeError(
            f"{cluster.gpus} GPUs cannot be shared by copies of {inside} ranks (pipeline "
            f"{pipeline} x sequence {mesh.sequence} x tensor {mesh.tensor})",
            hint=f"choose sizes whose product divides {cluster.gpus}",
        )
    sizes = (cluster.gpus // inside, mesh.sequence, mesh.ring, mesh.tensor)
    return MeshShape(*sizes, norms=mesh.norms)


def _recompute(name: str, value: Any) -> Recompute:
    text = read_text(name, value)
    word, equals, count = text.partition("=")
    numbered = word == "layers" and count.isascii() and count.isdecimal() and 0 < len(count) < 7
    if text not in RECOMPUTES and not (equals and numbered):
        hint = f"give {', '.join(RECOMPUTES)}, or layers=N"
        raise ShapeError(f"{name} is {shown(value)}", hint=hint)
    return Recompute(text)


def _layers(name: str, value: Any) -> str | tuple[int, ...]:
    """Counts of stages, as a list or as text, or how they are to be found."""
    if isinstance(value, str) and value in SPLITS:
        return value
    try:
        counts = read_counts(value) if isinstance(value, str) else _listed(value)
    except ValueError:
        raise ShapeError(f"{name} is {shown(value)}", hint=_LAYERS_HINT) from None
    return counts


def _listed(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or not all(type(each) is int for each in value):
        raise ValueError(value)
    if not 0 <= min(value) <= max(value) <= MOST_STAGES:
        raise ValueError(value)
    return tuple(value)


_LAYERS_HINT = "give the layers of each stage, as 9,9,8,6 or 3*9,5, or even, or balanced"


def _cluster(name: str, value: Any) -> Cluster:
    return _named_cluster(read_text(name, value))


_named_cluster = lru_cache(maxsize=64)(read_cluster)


@lru_cache(maxsize=16)
def _machine(path: str) -> MeasuredMachine:
    return read_machine(Path(path))


def _profile(name: str, value: Any) -> MeasuredMachine:
    return _machine(read_text(name, value))


def _mesh(name: str, value: Any) -> tuple[tuple[str, int], ...]:
    if isinstance(value, str):
        return _parsed_mesh(value)
    if not isinstance(value, dict):
        raise ShapeError(f"{name} is {shown(value)}", hint="give tensor=2,pipeline=4, or an object")
    return tuple(_axis(key, whole_number(size)) for key, size in value.items() if size is not None)


def _axis(name: str, size: Any) -> tuple[str, int]:
    if name not in MESH_NAMES:
        raise ShapeError(f"a mesh has no {shown(name[:40])}", hint=axis_hint(name, MESH_NAMES))
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= LARGEST_OF_MESH:
        hint = f"give a whole number from 1 to {LARGEST_OF_MESH:,}"
        raise ShapeError(f"{name} of the mesh is {shown(size)}", hint=hint)
    return name, size


@lru_cache(maxsize=1024)
def _parsed_mesh(text: str) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for part in text.split(",") if text else ():
        name, equals, size = (word.strip() for word in part.partition("="))
        if not equals:
            hint = "write NAME=NUMBER with commas between, for example tensor=8,pipeline=4"
            raise ShapeError(f"mesh {shown(text)}: {shown(part)} is not a size", hint=hint)
        if name in found:
            raise ShapeError(f"mesh {shown(text)} has {name} twice", hint="give it once")
        whole = size.isascii() and size.isdecimal() and len(size) <= 9
        found |= [_axis(name, int(size) if whole else size)]
    return tuple(found.items())


def _options(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(value, list) and all(isinstance(each, str) and "=" in each for each in value):
        value = dict(each.split("=", 1) for each in value)
    if not isinstance(value, dict):
        raise ShapeError(f"{name} is {shown(value)}", hint='give an object, as {"limit": 8}')
    return tuple(sorted((str(key), str(each)) for key, each in value.items()))


_READERS: dict[str, Reader] = {
    "model": read_model,
    "lora": read_lora,
    "cluster": _cluster,
    "tokens": read_count,
    "batch_tokens": read_count,
    "mesh": _mesh,
    "schedule": read_text,
    "chunks": read_count,
    "slices": read_count,
    "options": _options,
    "layers": _layers,
    "rows": read_count,
    "recompute": _recompute,
    "shard": one_of(*SHARDS),
    "attention": one_of(*ATTENTION_KERNELS),
    "fused_norm": read_switch,
    "sequence_parallel_norms": read_switch,
    "vocabulary": read_switch,
    "offload": one_of(*OFFLOADS),
    "precision": one_of(*PRECISIONS),
    "profile": _profile,
}
"""What a layout may say, in the order of the reference."""

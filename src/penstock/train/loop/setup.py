"""From settings to what is run: the model's numbers, the schedule, the slices, the layers.

Everything here is settled without torch, so that a launcher refuses what cannot work before it
starts a process, and every process arrives at the same layout from the same settings.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from penstock.arch.config import ModelConfig
from penstock.arch.families import from_huggingface
from penstock.arch.layer_split import split_layers
from penstock.arch.mesh_shape import MeshShape, refuse_misfits
from penstock.core.schedule import Schedule
from penstock.errors import FormatError, ShapeError, shown
from penstock.estimate.policies.steps import one_slice_each
from penstock.files import load
from penstock.files.json_object import read_object
from penstock.plan.ragged_batch import RaggedBatches
from penstock.plan.slices import (
    Lengths,
    align,
    equal_flops_of_model,
    even,
    flops_shares,
)
from penstock.schedules import find, names_a_file
from penstock.train.config.sections import PipelineSettings
from penstock.train.config.settings import Settings
from penstock.train.loop.flags import refusals_in_keys
from penstock.train.loop.host_stages import host_stages
from penstock.train.loop.ragged_setup import largest_batch, ragged_batches
from penstock.train.report.compared import compared_schedules
from penstock.transform import (
    make_changes,
    offload_stages,
    recompute_all,
    recompute_all_but_last_slices,
    recompute_stages,
    recompute_without_attention,
    split_backward,
    spread_vocabulary,
    weigh_slices,
)

ELEMENT_BYTES: Mapping[str, int] = {"float32": 4, "float64": 8, "bfloat16": 2}


@dataclass(frozen=True)
class RunSetup:
    """A schedule with what its stages and slices are made of."""

    model: ModelConfig
    schedule: Schedule
    lengths: tuple[Lengths, ...]
    """Tokens of each slice of each microbatch."""
    layers: tuple[int, ...]
    """How many layers each stage has."""
    mesh: MeshShape
    """How many ranks each device has, and how many replicas there are of all of them."""
    host_stages: frozenset[int] = frozenset()
    """Stages whose optimizer state is on the host."""


def layout_of(settings: Settings, processes: int) -> RunSetup:
    """What a run of so many processes consists of."""
    model = architecture(settings)
    model.refuse_length(settings.batch.length)
    pipeline, mesh = settings.pipeline, settings.mesh.shape
    refuse_misfits(model, mesh)
    devices = device_count(mesh, pipeline.devices, processes)
    if settings.data.policy == "chunk":
        largest = largest_batch(settings, ragged_of(settings, model, devices))
        schedule, lengths = largest.schedule, largest.packing.tokens
    else:
        schedule = _schedule(settings, model, devices)
        lengths = tuple(_lengths(settings, model, count) for count in schedule.shape.slices)
        schedule = _changed(schedule, pipeline)
    cut = pipeline.layers or schedule.shape.cut(model.layers)
    split = split_layers(model.layers, schedule.shape.stages, cut)
    schedule = _weighed(schedule, lengths, model)
    if settings.plan.policy == "improving" and "B" in schedule.table.kinds:
        schedule = split_backward(schedule)  # a solver places the two halves by themselves
    with refusals_in_keys():
        for other in compared_schedules(settings, schedule.shape.devices):
            other.shape.cut(model.layers)  # refused now, and not by the report
    away = host_stages(settings.optimizer.host_stages, schedule.shape, tied=model.tied)
    return RunSetup(model, schedule, lengths, tuple(map(len, split)), mesh, away)


def ragged_of(settings: Settings, model: ModelConfig, devices: int) -> RaggedBatches:
    """The orders of a run whose batches have sequences of unequal lengths."""
    change = partial(_changed, pipeline=settings.pipeline)
    return ragged_batches(settings, model, devices, change)


def order_for(settings: Settings, model: ModelConfig, devices: int, microbatches: int) -> Schedule:
    """The order of a run for another number of microbatches than its settings say."""
    batch = settings.batch.model_copy(update={"microbatches": microbatches})
    schedule = _schedule(settings.model_copy(update={"batch": batch}), model, devices)
    return _changed(schedule, settings.pipeline)


def architecture(settings: Settings) -> ModelConfig:
    """The model's numbers, with activations in the run's dtype, and with adapters where only they
    are trained."""
    config = settings.model.config or _from_folder(settings.model.huggingface)
    size = ELEMENT_BYTES[settings.run.dtype]
    if config.fused_files and settings.lora.rank:
        raise ShapeError(
            "the files of this model hold queries, keys and values as one matrix, which has one "
            "adapter in PEFT, and not three",
            hint="leave lora.rank out: adapters are for models that have them apart",
        )
    return replace(config, element_bytes=size, lora=settings.lora.adapters)


_OTHERWISE = (
    "any other decoder of transformers runs in a loop of your own, as stages of its own layers: "
    "penstock.run.decoder_stages, in docs/howto/own-modules.md"
)


def _from_folder(folder: str) -> ModelConfig:
    path = Path(folder) / "config.json"
    stated = read_object(path, "name a folder with a Hugging Face model")
    try:
        return from_huggingface(stated)
    except ShapeError as refusal:
        raise ShapeError(refusal.message, hint=f"{refusal.hint}; {_OTHERWISE}") from None


def device_count(mesh: MeshShape, wanted: int, processes: int) -> int:
    """Pipeline devices among so many processes, each a cell of the mesh in one replica; `wanted` is
    their number, or 0 for as many as there are."""
    devices = wanted or processes // mesh.ranks(1)
    if not devices or mesh.ranks(devices) != processes:
        raise _uneven(mesh, wanted, processes)
    return devices


def _uneven(mesh: MeshShape, wanted: int, processes: int) -> ShapeError:
    """Processes that cannot be shared out, with the nearest numbers that can."""
    devices = {"pipeline.devices": wanted} if wanted else {}
    sizes = {f"mesh.{name}": getattr(mesh, name) for name in ("replicas", "sequence", "tensor")}
    large = {key: size for key, size in sizes.items() if size > 1}
    asked = " x ".join(f"{key} {size}" for key, size in {**devices, **large}.items())
    unit = mesh.ranks(wanted or 1)
    fits = {unit} if wanted else {max(processes // unit, 1) * unit, processes // unit * unit + unit}
    return ShapeError(
        f"{processes} process{'es' if processes != 1 else ''} cannot be {asked}",
        hint=f"start {' or '.join(map(str, sorted(fits)))} of them, or change these sizes",
    )


def _schedule(settings: Settings, model: ModelConfig, devices: int) -> Schedule:
    """The schedule of a registered name or of a file."""
    pipeline, microbatches = settings.pipeline, settings.batch.microbatches
    if names_a_file(pipeline.schedule):
        return _from_file(settings, devices)
    spec = find(pipeline.schedule)
    chunks = pipeline.chunks or spec.chunks_of(model.layers, devices)
    sizes = (devices, microbatches, chunks, pipeline.slices)
    options = dict(pipeline.options)
    if settings.data.policy == "flex" and spec.ragged:
        options["groups"] = one_slice_each(microbatches)
    with refusals_in_keys():
        return spec.build(spec.case(*sizes, options))


def _from_file(settings: Settings, devices: int) -> Schedule:
    """The schedule of a file, which has its own size: it must be the run's."""
    pipeline, path = settings.pipeline, settings.pipeline.schedule
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe can be read once
        raise ShapeError(
            f"pipeline.schedule is {shown(path)}, which is not a file",
            hint="give a name of `penstock list`, or a file, which every rank reads",
        )
    try:
        schedule = load(path)
    except FormatError as error:
        raise ShapeError(f"{path[:300]}, {error.message}", hint=error.hint) from None
    shape = schedule.shape
    sizes = (
        ("devices", shape.devices, devices),
        ("microbatches", shape.microbatches, settings.batch.microbatches),
        ("slices", max(shape.slices), pipeline.slices),
        ("stages", shape.stages, pipeline.chunks * devices or shape.stages),
    )
    for what, has, wanted in sizes:
        if has != wanted:
            raise ShapeError(
                f"the schedule of {path} has {has} {what}, but the run has {wanted}",
                hint="take the file's number, or another schedule",
            )
    if pipeline.options:
        raise ShapeError(
            f"pipeline.options are given, but {path} is a file", hint="leave the options out"
        )
    return schedule


def _changed(schedule: Schedule, pipeline: PipelineSettings) -> Schedule:
    """The schedule with what can be combined with any."""
    stages = range(schedule.shape.stages) if pipeline.offload == "all" else pipeline.offload
    changes: dict[str, Callable[[Schedule], Schedule]] = {
        "recompute": partial(_recomputed, pipeline=pipeline)
    }
    if pipeline.vocabulary == "shards":
        changes["vocabulary"] = spread_vocabulary
    if not isinstance(stages, str):
        changes["offload"] = partial(offload_stages, stages=stages)
    return make_changes(schedule, changes)


def _recomputed(schedule: Schedule, pipeline: PipelineSettings) -> Schedule:
    if pipeline.recompute == "none":
        return schedule
    if pipeline.recompute == "without-attention":
        return recompute_without_attention(schedule)
    if not isinstance(pipeline.recompute, str):
        return recompute_stages(schedule, pipeline.recompute)
    if pipeline.keep_slices:
        return recompute_all_but_last_slices(schedule, pipeline.keep_slices)
    return recompute_all(schedule)


def _lengths(settings: Settings, model: ModelConfig, count: int) -> Lengths:
    """Tokens of each of `count` slices of a sequence."""
    cut, length = settings.pipeline.cut, settings.batch.length
    if cut == "even" or count == 1:
        return even(length, count)
    if cut == "equal-flops":
        return align(equal_flops_of_model(model, length, count))
    if len(cut) != count:
        raise ShapeError(
            f"pipeline.cut gives {len(cut)} lengths, but a microbatch has {count} slices",
            hint='give "even" or "equal-flops" where microbatches have different slices',
        )
    return tuple(map(int, cut))


def _weighed(schedule: Schedule, lengths: tuple[Lengths, ...], model: ModelConfig) -> Schedule:
    """The schedule with each slice's share of the work, for predictions."""
    if max(schedule.shape.slices) == 1:
        return schedule
    linear, attention = model.growing_flops(max(map(sum, lengths)))
    shares = {cut: flops_shares(cut, linear=linear, attention=attention) for cut in {*lengths}}
    return weigh_slices(schedule, [shares[cut] for cut in lengths])

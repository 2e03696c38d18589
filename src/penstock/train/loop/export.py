"""The weights of a run as a Hugging Face folder: by all its ranks at its end, and by one process
from a checkpoint at any time.

    by ranks      each device of the first replica writes a file of its own, by one of its ranks,
                  which gathers tensors of which others hold blocks; no process has them all
    by one        tensors of a checkpoint, as many at a time as one file holds

Of a run with LoRA these are its adapters (adapter_export.py), or the model that they make.
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.lora import Lora
from penstock.arch.parameters import expected_shapes
from penstock.data.tokenizer import Bytes
from penstock.errors import RunError, ShapeError
from penstock.model.io.huggingface import (
    SHARD_BYTES,
    refuse_foreign,
    write,
    write_index,
    write_shard,
)
from penstock.model.io.kept_files import (
    NOTHING_KEPT,
    KeptFiles,
    kept_of_model,
    kept_of_tokenizer,
    stored_dtype,
)
from penstock.model.io.peft_files import refuse_other_folder, write_adapters
from penstock.run.comm.collective import meet
from penstock.run.step.engine import Engine
from penstock.run.step.state import held, weight_key
from penstock.train.checkpoint import Found, load_part, newest_in, stored_in, stored_kinds
from penstock.train.config.settings import Settings
from penstock.train.loop.adapter_export import (
    adapter_dtype,
    export_adapters,
    merged_weights,
    stored_adapters,
)
from penstock.train.loop.frozen_base import refuse_other_base
from penstock.train.loop.run_lock import claim_export
from penstock.train.loop.setup import architecture
from penstock.train.loop.trainer import Trainer
from penstock.train.loop.whole_tensors import give_blocks, take_tensors


class Exported(NamedTuple):
    """What was written."""

    folder: Path
    step: int
    dtype: str
    kept: tuple[str, ...] = ()
    """Files that were copied from where the run began."""
    damaged: tuple[str, ...] = ()
    """What is wrong with newer checkpoints, which were not taken."""
    what: str = "weights"
    """Weights, or adapters, or the weights that these make."""

    def __str__(self) -> str:
        kept = f", with {', '.join(self.kept)}" if self.kept else ""
        return (
            f"exported the {self.what} of step {self.step} as {self.dtype} into {self.folder}{kept}"
        )


def export_dtype(settings: Settings) -> str:
    """The type that weights are exported in."""
    if settings.checkpoint.export_dtype != "auto":
        return settings.checkpoint.export_dtype
    source = settings.model.huggingface
    return stored_dtype(Path(source)) if source else settings.run.dtype


def kept_files(settings: Settings) -> KeptFiles:
    """What an export has beside weights: all of the folder that the run began with, or else the
    tokenizer that it was trained with."""
    if settings.model.huggingface:
        return kept_of_model(Path(settings.model.huggingface))
    if settings.data.tokenizer != Bytes.name:
        return kept_of_tokenizer(Path(settings.data.tokenizer).expanduser())
    return NOTHING_KEPT


def export_weights(trainer: Trainer) -> None:
    """Write the weights of a run as its settings say."""
    trainer.tracker.handles_files("exports the weights")
    settings = trainer.settings
    folder, name = Path(settings.checkpoint.export), export_dtype(settings)
    if not trainer.engine.layout.model.trains_all:
        name = adapter_dtype(settings)
        refuse_other_folder(folder)
        export_adapters(trainer.engine, folder, getattr(torch, name), settings.model.huggingface)
        trainer.voice.say(str(Exported(folder, trainer.done, name, what="adapters")))
        return
    kept = kept_files(settings)
    refuse_foreign(folder, kept)
    export_engine(trainer.engine, folder, getattr(torch, name), kept)
    trainer.voice.say(str(Exported(folder, trainer.done, name, tuple(kept.files))))


def export_engine(
    engine: Engine, folder: Path, dtype: torch.dtype, kept: KeptFiles = NOTHING_KEPT
) -> None:
    """Write the weights of all ranks, which do so together: each device of the first replica writes
    a file of its own. What all devices have shards of is in the file of the first one."""
    mesh, tracker = engine.mesh, engine.tracker
    with tracker.gathers_files("export the weights"):
        _write_own(engine, folder, dtype)
    with tracker.gathers("export the weights"):
        meet(mesh.world)
    if mesh.rank == 0:
        write_index(folder, engine.layout.model, mesh.devices, dtype, kept)


def _write_own(engine: Engine, folder: Path, dtype: torch.dtype) -> None:
    """Write the file of this device, or send what its writer lacks; then what the writer of the
    first device lacks of what is on shards."""
    mesh, model, blocks = engine.mesh, engine.layout.model, held(engine)
    group = mesh.along("replica", "sequence", "tensor")
    on_shards = {name: blocks.pop(name) for name in engine.layout.on_shards if name in blocks}
    if mesh.rank == 0:
        shared = take_tensors(on_shards, mesh.world) if on_shards else ()
        every = chain(take_tensors(blocks, group), shared)
        write_shard(folder, model, mesh.device + 1, mesh.devices, every, dtype)
        return
    if group is None or group.rank() == 0:
        tensors = take_tensors(blocks, group)
        write_shard(folder, model, mesh.device + 1, mesh.devices, tensors, dtype)
    else:
        give_blocks(blocks, group)
    if on_shards and mesh.world is not None:
        give_blocks(on_shards, mesh.world)


def export_checkpoint(settings: Settings, run: Path, folder: Path, step: int | None) -> Exported:
    """Write the weights that a run has stored, those of its newest checkpoint or of one step; its
    adapters where it has trained these."""
    found, model = _stored_step(run, step), architecture(settings)
    if model.lora is not None:
        return _export_adapters(settings, model.lora, found, folder)
    name, kept = export_dtype(settings), kept_files(settings)
    with claim_export(folder):
        dtype = getattr(torch, name)
        write(folder, model, _stored_weights(found, model), dtype, kept=kept)
    return Exported(folder, found.step, name, tuple(kept.files), found.damaged)


def export_merged(settings: Settings, run: Path, folder: Path, step: int | None) -> Exported:
    """Write the model that a run has made of its adapters and the weights it began with."""
    model = architecture(settings)
    if model.trains_all:
        raise ShapeError(
            f"{str(run)!r} has trained all weights, so there are no adapters to merge",
            hint="leave --merge out",
        )
    found, name, kept = _stored_step(run, step), export_dtype(settings), kept_files(settings)
    refuse_other_base(settings, found.state)
    with claim_export(folder):
        tensors = merged_weights(settings, model, stored_adapters(found, model))
        plain = replace(model, lora=None)
        write(folder, plain, tensors, getattr(torch, name), kept=kept)
    return Exported(folder, found.step, name, tuple(kept.files), found.damaged, "merged weights")


def _export_adapters(settings: Settings, lora: Lora, found: Found, folder: Path) -> Exported:
    name, tensors = adapter_dtype(settings), stored_adapters(found, architecture(settings))
    with claim_export(folder):
        dtype, base = getattr(torch, name), settings.model.huggingface
        write_adapters(folder, lora, tensors.items(), dtype, base)
    return Exported(folder, found.step, name, damaged=found.damaged, what="adapters")


def _stored_step(run: Path, step: int | None) -> Found:
    found = _found(run / "checkpoints", step)
    if found is None:
        raise RunError(
            f"{str(run)!r} has no checkpoint", hint="give the folder of a run that has saved one"
        )
    return found


def _found(checkpoints: Path, step: int | None) -> Found | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is damaged is in the answer
        return newest_in(checkpoints) if step is None else stored_in(checkpoints, step)


def _stored_weights(found: Found, model: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """The weights of a checkpoint, loaded some at a time."""
    kinds, group, held_bytes = stored_kinds(found), dict[str, Tensor](), 0
    for name, shape in expected_shapes(model).items():
        kind = kinds.get(weight_key(name))
        tensor = torch.empty(shape, dtype=kind.dtype if kind else torch.float32)
        if group and held_bytes + tensor.nbytes > SHARD_BYTES:
            yield from _loaded(found, group)
            group, held_bytes = {}, 0
        group[name], held_bytes = tensor, held_bytes + tensor.nbytes
    yield from _loaded(found, group)


def _loaded(found: Found, tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    load_part(found, {weight_key(name): tensor for name, tensor in tensors.items()})
    yield from tensors.items()

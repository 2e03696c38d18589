"""The adapters of a run with LoRA as a folder of PEFT, and the model that they make of the weights
which the run began with.

    adapters    what was trained, whatever the run was spread over: small, so one rank gathers all
    merged      W + scale B A for each matrix that has an adapter, and all others as they were
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.lora import Lora, adapter_names
from penstock.arch.parameters import expected_shapes, trained_names
from penstock.model.io.huggingface import read_weights
from penstock.model.io.initial_weights import initialise
from penstock.model.io.peft_files import write_adapters
from penstock.run.step.engine import Engine
from penstock.run.step.state import held, weight_key
from penstock.train.checkpoint import Found, load_part, stored_kinds
from penstock.train.config.settings import Settings
from penstock.train.loop.whole_tensors import give_blocks, take_tensors


def adapter_dtype(settings: Settings) -> str:
    """The type that adapters are exported in: that of their main weights, unless one is given."""
    if settings.checkpoint.export_dtype != "auto":
        return settings.checkpoint.export_dtype
    return "float64" if settings.run.dtype == "float64" else "float32"


def export_adapters(engine: Engine, folder: Path, dtype: torch.dtype, base: str) -> None:
    """Write the adapters of all ranks, which do so together; `base` is the folder of the model."""
    lora, world, blocks = engine.layout.model.lora, engine.mesh.world, held(engine)
    assert lora is not None
    with engine.tracker.gathers_files("export the adapters"):
        if world is None or engine.mesh.rank == 0:
            write_adapters(folder, lora, take_tensors(blocks, world), dtype, base)
        else:
            give_blocks(blocks, world)


def stored_adapters(found: Found, model: ModelConfig) -> dict[str, Tensor]:
    """The adapters of a checkpoint."""
    shapes, kinds, names = expected_shapes(model), stored_kinds(found), trained_names(model)
    stored = {name: kinds.get(weight_key(name)) for name in names}
    tensors = {
        name: torch.empty(shapes[name], dtype=kind.dtype if kind else torch.float32)
        for name, kind in stored.items()
    }
    load_part(found, {weight_key(name): tensor for name, tensor in tensors.items()})
    return tensors


def merged_weights(
    settings: Settings, model: ModelConfig, adapters: dict[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """The weights that a run began with, one after the other, each with what its adapter adds."""
    assert model.lora is not None
    for name, value in _weights_before(settings, model):
        down, up = adapter_names(name.removesuffix(".weight"))
        if down in adapters:
            value = _merged(value, adapters[down], adapters[up], model.lora)
        yield name, value


def _merged(value: Tensor, down: Tensor, up: Tensor, lora: Lora) -> Tensor:
    """In the type of the adapters, which is the wider one."""
    return value.to(down.dtype).addmm(up, down, alpha=lora.scale)


def _weights_before(settings: Settings, model: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    shapes = expected_shapes(replace(model, lora=None))
    if settings.model.huggingface:
        yield from read_weights(Path(settings.model.huggingface), shapes)
        return
    for name, shape in shapes.items():
        value = torch.empty(shape)
        initialise(model, name, value, settings.run.seed)
        yield name, value

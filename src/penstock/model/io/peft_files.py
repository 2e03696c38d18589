"""Adapters of LoRA in a folder, as Hugging Face's PEFT writes and reads them.

    adapter_config.json          rank, alpha, targets, the folder of the model
    adapter_model.safetensors    both matrices of each adapter, base_model.model.NAME

A folder that is written appears whole or not at all.
"""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.lora import Lora
from penstock.arch.parameters import expected_shapes, trained_names
from penstock.arch.peft_keys import PREFIX, from_peft, to_peft
from penstock.errors import ShapeError
from penstock.files.json_object import read_object
from penstock.model.io.huggingface import (
    make_staging_folder,
    put_in_place,
    refuse_dtype,
    refuse_foreign,
    staging_folder,
)
from penstock.model.io.inventory import refuse_shape
from penstock.model.io.safetensors_files import save, shapes_in, tensors_in, write_json

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ADAPTER_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, "README.md")
"""What such a folder may hold; PEFT puts a text beside the files."""


def refuse_other_folder(folder: Path) -> None:
    """Refuse to replace a folder that holds anything but adapters."""
    refuse_foreign(folder, own=ADAPTER_FILES)


def write_adapters(
    folder: Path,
    lora: Lora,
    tensors: Iterable[tuple[str, Tensor]],
    dtype: torch.dtype,
    base: str = "",
) -> None:
    """Write all adapters of a model, given by their names in it."""
    refuse_dtype(dtype)
    refuse_other_folder(folder)
    shutil.rmtree(staging_folder(folder), ignore_errors=True)
    stage = make_staging_folder(folder)
    try:
        save(stage / ADAPTER_WEIGHTS, ((PREFIX + name, tensor) for name, tensor in tensors), dtype)
        write_json(stage / ADAPTER_CONFIG, to_peft(lora, base))
        put_in_place(stage, folder, own=ADAPTER_FILES)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise


def read_adapter_config(folder: Path) -> Lora:
    """What the adapters of a folder are."""
    return from_peft(
        read_object(folder / ADAPTER_CONFIG, "give a folder with adapters saved by PEFT")
    )


def read_adapters(folder: Path, config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """The adapters of a folder by their names in the model, whose config has the same ones."""
    refuse_other_adapters(folder, config)
    shapes, path = expected_shapes(config), folder / ADAPTER_WEIGHTS
    names, found = trained_names(config), shapes_in(path)
    if {*found} != {PREFIX + name for name in names}:
        odd = sorted({*found} ^ {PREFIX + name for name in names})[0]
        raise ShapeError(
            f"{path} has {len(found)} tensors, and the model {len(names)} of adapters: {odd} is "
            f"only in {'the file' if odd in found else 'the model'}",
            hint="the adapters are those of another model",
        )
    for name, tensor in tensors_in(path, [PREFIX + name for name in names]):
        own = name.removeprefix(PREFIX)
        refuse_shape(path, name, tuple(tensor.shape), shapes[own])
        yield own, tensor


def refuse_other_adapters(folder: Path, config: ModelConfig) -> None:
    """Refuse adapters of another rank, on other matrices or of another scale than a model's."""
    lora, stored = config.lora, read_adapter_config(folder)
    if lora is None or (lora.rank, {*lora.targets}) != (stored.rank, {*stored.targets}):
        raise ShapeError(
            f"{folder} has adapters of rank {stored.rank} on {', '.join(stored.targets)}, the run "
            f"{_described(lora)}",
            hint="set lora.rank and lora.targets to those of the folder",
        )
    if lora.alpha != stored.alpha:
        raise ShapeError(
            f"{folder} has adapters with alpha {stored.alpha:g}, the run {lora.alpha:g}",
            hint=f"set lora.alpha to {stored.alpha:g}",
        )


def _described(lora: Lora | None) -> str:
    return "none" if lora is None else f"of rank {lora.rank} on {', '.join(lora.targets)}"

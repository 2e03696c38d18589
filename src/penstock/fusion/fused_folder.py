"""Hugging Face folders fused and unfused.

A folder that is written has the tokenizer and all other files of its source. Beside its weights it
has `unfuse.safetensors`, with what the way back needs to be exact; which columns of a fused MLP are
whose is in its `config.json`.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.families import to_huggingface
from penstock.arch.parameters import expected_shapes
from penstock.errors import ShapeError
from penstock.fusion.fused_layers import Apart, TensorsByName, fuse_tensors_of, unfuse_tensors_of
from penstock.fusion.fusion_plan import FusionPlan, fused_model
from penstock.fusion.unfused_model import unfused_model
from penstock.model.io.huggingface import OURS, read_config, read_weights, refuse_foreign, write
from penstock.model.io.kept_files import KeptFiles, kept_of_model, stored_dtype
from penstock.model.io.safetensors_files import open_safetensors, save_as_is

APART = "unfuse.safetensors"


def fuse_folder(source: Path, plan: FusionPlan, target: Path) -> ModelConfig:
    """Write the model of a folder as a plan makes it."""
    model = read_config(source)
    fused = fused_model(model, plan)
    kept = _kept(source, model, fused, target)
    with tempfile.TemporaryDirectory() as spare:
        path = Path(spare) / APART
        if plan.fuse:
            kept = kept._replace(files={**kept.files, APART: path})
        tensors = _put_apart(fuse_tensors_of(model, plan, _Stored(source)), path)
        write(target, fused, tensors, _dtype(source), kept=kept)
    return fused


def unfuse_folder(source: Path, target: Path) -> ModelConfig:
    """Write the model that a folder was fused from, attentions that were removed apart."""
    model = read_config(source)
    unfused = unfused_model(model)
    kept = _kept(source, model, unfused, target)
    tensors = unfuse_tensors_of(model, _Stored(source), _read_apart(source))
    write(target, unfused, tensors, _dtype(source), kept=kept)
    return unfused


def read_wide_weights(folder: Path, model: ModelConfig) -> TensorsByName:
    """The weights of a folder in 32 bits at least, to measure with."""
    return {
        name: tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        for name, tensor in read_weights(folder, expected_shapes(model))
    }


class _Stored:
    """Tensors of a folder by their names."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.dtype = folder, _dtype(folder)

    def __call__(self, names: Sequence[str]) -> TensorsByName:
        found = dict(read_weights(self.folder, names))
        for name, tensor in found.items():
            if tensor.dtype != self.dtype:
                raise ShapeError(
                    f"{self.folder}: {name} is stored as {_name(tensor.dtype)}, other tensors as "
                    f"{_name(self.dtype)}",
                    hint="store the model in one type, so that nothing is rounded on the way",
                )
        return {name: found[name] for name in names}


def _put_apart(
    found: Iterator[tuple[str, Tensor] | Apart], path: Path
) -> Iterator[tuple[str, Tensor]]:
    """Tensors of the model; the others are in a file when all have come."""
    apart: TensorsByName = {}
    for each in found:
        if isinstance(each, Apart):
            apart[each.name] = each.tensor
        else:
            yield each
    save_as_is(path, apart)


def _kept(source: Path, model: ModelConfig, other: ModelConfig, target: Path) -> KeptFiles:
    """What is written beside the weights; refused where the folder cannot be written."""
    kept = kept_of_model(source)
    refuse_foreign(target, kept, (*OURS, APART))
    return kept._replace(stated=restate_config(kept.stated, model, other))


def restate_config(stated: Mapping[str, Any], old: ModelConfig, new: ModelConfig) -> dict[str, Any]:
    """A `config.json` of one model as that of another: keys that say the same of both stay."""
    before, after = to_huggingface(old), to_huggingface(new)
    same = {key: value for key, value in stated.items() if key in after or key not in before}
    return {**same, **{key: value for key, value in after.items() if before.get(key) != value}}


def _read_apart(folder: Path) -> TensorsByName:
    if not (folder / APART).exists():
        return {}
    with open_safetensors(folder / APART) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping


def _dtype(folder: Path) -> torch.dtype:
    found: torch.dtype = getattr(torch, stored_dtype(folder))
    return found


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

"""Hugging Face folders in and out: `config.json` and safetensors files.

A folder that is read has exactly the tensors of its config, in their shapes. A folder that is
written has what was kept of the one that the model came from (kept_files), and appears whole or not
at all: files grow in a folder beside it, which takes its place when everything is there and on the
disk. Ranks may each write files of their own, so that no process ever holds the whole model:

    write_shard(folder, config, rank + 1, ranks, tensors, dtype)      on every rank
    write_index(folder, config, ranks, dtype)                         on one rank, when all are done
"""

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.families import BYTES, from_huggingface
from penstock.arch.parameters import EMBEDDING, HEAD, elements, expected_shapes
from penstock.errors import ShapeError
from penstock.files.durable import sync_path
from penstock.model.io.fused_tensors import fuse_tensors, stored_rows, stored_shapes
from penstock.model.io.inventory import refuse_names, refuse_other_head, refuse_shape, refuse_wanted
from penstock.model.io.kept_files import CONFIG, NOTHING_KEPT, KeptFiles, is_own
from penstock.model.io.safetensors_files import (
    INDEX,
    explain_write_errors,
    file_name,
    locate,
    read_json,
    save,
    shapes_in,
    tensors_in,
    write_json,
)

SHARD_BYTES = 5 * 10**9
"""Bytes of one file, unless a single tensor is larger."""
OURS = (CONFIG, INDEX, "model*.safetensors")
"""What a folder that was written here consists of, beside what was kept."""


def read_config(folder: Path) -> ModelConfig:
    """The model that a folder holds."""
    return from_huggingface(read_json(folder / CONFIG))


def read_weights(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
    """The parameters of these names, as they are stored; only their files are opened.

    The names are checked at once, the shape of a tensor when it is read.
    """
    config, files = read_config(folder), locate(folder)
    wanted = list(names)
    refuse_names(folder, config, files)
    refuse_wanted(wanted, expected_shapes(config))
    return _read(folder, config, files, wanted)


def _read(
    folder: Path, config: ModelConfig, files: Mapping[str, str], wanted: list[str]
) -> Iterator[tuple[str, Tensor]]:
    shapes, places = stored_shapes(config), stored_rows(config)
    parts: dict[str, list[str]] = {}
    for name in wanted:
        parts.setdefault(places[name].name, []).append(name)
    for file in dict.fromkeys(files[name] for name in parts):
        inside = [name for name in parts if files[name] == file]
        for name, tensor in tensors_in(folder / file, inside):
            refuse_shape(folder / file, name, tuple(tensor.shape), shapes[name])
            if name == EMBEDDING and config.tied and HEAD in files:
                ((_, head),) = tensors_in(folder / files[HEAD], [HEAD])
                refuse_other_head(folder / files[HEAD], tensor, head)
            yield from ((part, places[part].cut(tensor)) for part in parts[name])


def write(
    folder: Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]],
    dtype: torch.dtype,
    shard_bytes: int = SHARD_BYTES,
    kept: KeptFiles = NOTHING_KEPT,
) -> None:
    """Write a whole model, in files of about `shard_bytes`; the tensors may come one by one."""
    refuse_foreign(folder, kept)
    refuse_dtype(dtype)
    shutil.rmtree(staging_folder(folder), ignore_errors=True)
    pairs = fuse_tensors(config, tensors.items() if isinstance(tensors, Mapping) else tensors)
    try:
        of = _write_parts(make_staging_folder(folder), _shards(pairs, dtype, shard_bytes), dtype)
        write_index(folder, config, of, dtype, kept)
    except BaseException:
        shutil.rmtree(staging_folder(folder), ignore_errors=True)
        raise


def _write_parts(stage: Path, shards: Iterable[Mapping[str, Tensor]], dtype: torch.dtype) -> int:
    """Write files as they come; how many they are, and with it their names, shows at the end."""
    parts: list[Path] = []
    for shard in shards:
        parts.append(stage / f"part-{len(parts)}.safetensors")
        save(parts[-1], shard, dtype)
    for number, part in enumerate(parts, 1):
        part.rename(part.with_name(file_name(number, len(parts))))
    return len(parts)


def _shards(
    pairs: Iterable[tuple[str, Tensor]], dtype: torch.dtype, shard_bytes: int
) -> Iterator[dict[str, Tensor]]:
    """Tensors in the order they come, as many together as fit into one file."""
    shard: dict[str, Tensor] = {}
    held = 0
    for name, tensor in pairs:
        size = tensor.numel() * dtype.itemsize
        if shard and held + size > shard_bytes:
            yield shard
            shard, held = {}, 0
        shard[name] = tensor
        held += size
    yield shard


def write_shard(
    folder: Path,
    config: ModelConfig,
    number: int,
    of: int,
    tensors: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]],
    dtype: torch.dtype,
) -> None:
    """Write one file of a model that several ranks write together; files count from 1."""
    refuse_dtype(dtype)
    pairs = fuse_tensors(config, tensors.items() if isinstance(tensors, Mapping) else tensors)
    save(make_staging_folder(folder) / file_name(number, of), pairs, dtype)


def write_index(
    folder: Path,
    config: ModelConfig,
    of: int,
    dtype: torch.dtype,
    kept: KeptFiles = NOTHING_KEPT,
) -> None:
    """Complete a model whose files are all written, and put it in its place."""
    stage = make_staging_folder(folder)
    names = [file_name(number, of) for number in range(1, of + 1)]
    files = _files_by_tensor(stage, config, names)
    for path in stage.iterdir():
        if path.name not in names:  # of an attempt that did not come to its end
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if of > 1:
        size = elements(expected_shapes(config)) * dtype.itemsize
        write_json(stage / INDEX, {"metadata": {"total_size": size}, "weight_map": files})
    kept.copy_to(stage)
    write_json(stage / CONFIG, kept.config(config, _name(dtype)))
    put_in_place(stage, folder, kept)


def _files_by_tensor(stage: Path, config: ModelConfig, names: Iterable[str]) -> dict[str, str]:
    """The file of every tensor, when the files together are the model and nothing else."""
    shapes = stored_shapes(config)
    files: dict[str, str] = {}
    for file in names:
        for name, shape in shapes_in(stage / file).items():
            if name in files:
                raise ShapeError(
                    f"{name} is in {files[name]} and in {file}",
                    hint="one rank writes each tensor; a tied head is the embedding",
                )
            refuse_shape(stage / file, name, shape, shapes.get(name, shape))
            files[name] = file
    if config.tied and HEAD in files:
        raise ShapeError(
            f"{files[HEAD]} has {HEAD}, but the model ties it to {EMBEDDING}",
            hint="write the embedding alone",
        )
    refuse_names(stage, config, files)
    return files


def staging_folder(folder: Path) -> Path:
    """Where a folder grows until it is complete."""
    return folder.with_name(f"{folder.name}.partial")


def refuse_foreign(
    folder: Path, kept: KeptFiles = NOTHING_KEPT, own: Collection[str] = OURS
) -> None:
    """Refuse to replace a folder that holds anything but a model, or other files of our `own`, and
    what is kept beside it."""
    if kept.source and kept.source.resolve() == folder.resolve():
        raise ShapeError(
            f"{folder} cannot be replaced: the model came from it", hint="give another folder"
        )
    with explain_write_errors(folder):
        inside = sorted(folder.iterdir()) if folder.is_dir() else []
    strange = [path.name for path in inside if not is_own(path.name, own, kept)]
    if strange or (folder.exists() and not folder.is_dir()):
        raise ShapeError(
            f"{folder} is not a model that could be replaced: {', '.join(strange[:3]) or 'a file'}",
            hint="give a folder that does not exist",
        )


def make_staging_folder(folder: Path) -> Path:
    stage = staging_folder(folder)
    with explain_write_errors(stage):
        stage.mkdir(parents=True, exist_ok=True)
    return stage


def refuse_dtype(dtype: torch.dtype) -> None:
    if _name(dtype) not in BYTES:
        raise ShapeError(
            f"a model is not written as {_name(dtype)}", hint=f"one of: {', '.join(BYTES)}"
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def put_in_place(
    stage: Path, folder: Path, kept: KeptFiles = NOTHING_KEPT, own: Collection[str] = OURS
) -> None:
    """Put the new folder in the place of the old one; at every moment one of them is whole."""
    refuse_foreign(folder, kept, own)
    old = folder.with_name(f"{folder.name}.old")
    with explain_write_errors(folder):
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        stage.rename(folder)
        sync_path(folder.parent)
        shutil.rmtree(old, ignore_errors=True)

"""Safetensors files in a folder: which tensors they hold, one tensor at a time, and new ones.

A large model is several files and an index that says which tensor is where. Reading opens only the
files that are asked for, so that a rank loads its own stages and nothing else. Nothing that goes
wrong with a file leaves here as anything but our own error with the file's name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from penstock.arch.parameters import Shapes
from penstock.errors import RunError, ShapeError
from penstock.files.durable import sync_path, write_file
from penstock.files.json_object import read_object
from penstock.files.regular import open_regular

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MOST_LETTERS = 200
"""Letters that an error repeats of what the library says."""


def file_name(number: int, of: int) -> str:
    """Name of one file of several; they count from 1, and one alone has no number.

    >>> file_name(1, 1), file_name(2, 12)
    ('model.safetensors', 'model-00002-of-00012.safetensors')
    """
    if not 1 <= number <= of:
        raise ShapeError(f"file {number} of {of} does not exist", hint="files count from 1")
    return SINGLE if of == 1 else f"model-{number:05}-of-{of:05}.safetensors"


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    return read_object(path, "give a folder with config.json and safetensors files")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object and see it on the disk."""
    with explain_write_errors(path):
        write_file(path, (json.dumps(content, indent=2) + "\n").encode())


def locate(folder: Path) -> dict[str, str]:
    """The file of every tensor in the folder."""
    if (folder / SINGLE).exists():
        return dict.fromkeys(shapes_in(folder / SINGLE), SINGLE)
    if not (folder / INDEX).exists():
        raise ShapeError(
            f"{folder} has neither {SINGLE} nor {INDEX}",
            hint="give a folder that a model was saved into in the safetensors format",
        )
    files = read_json(folder / INDEX).get("weight_map")
    if not isinstance(files, dict) or not all(_plain(name) for name in files.values()):
        raise ShapeError(
            f"{folder / INDEX} has no weight_map of file names",
            hint="an index maps each tensor to a file in its own folder",
        )
    return files


def _plain(name: object) -> bool:
    return isinstance(name, str) and Path(name).name == name and "\0" not in name


def shapes_in(path: Path) -> Shapes:
    """Name and shape of every tensor in a file, without reading one."""
    with open_safetensors(path) as file:
        names = file.keys()
        return {name: tuple(file.get_slice(name).get_shape()) for name in names}


def tensors_in(path: Path, names: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of these names in a file, one after the other."""
    with open_safetensors(path) as file:
        held = set(file.keys())
        for name in names:
            if name not in held:
                raise ShapeError(
                    f"{path} has no tensor {name}, though it should",
                    hint="the index and the file are not of one model: load it again",
                )
            yield name, file.get_tensor(name)


@contextmanager
def open_safetensors(path: Path) -> Iterator[Any]:
    """A file for reading; it is mapped into memory and read where it is touched."""
    library = _library()
    try:
        open_regular(path).close()  # a pipe would be waited for
        with library.safe_open(str(path), framework="pt") as file:
            yield file
    except (library.SafetensorError, OSError) as error:
        raise RunError(
            f"{str(path)[:300]} cannot be read: {_cause(error)}",
            hint="the file is missing, cut off or no safetensors file: fetch it again",
        ) from error


def save(
    path: Path, tensors: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]], dtype: torch.dtype
) -> None:
    """Write tensors into a file in this type, and see them on the disk; they may come one by one,
    and are kept in the type of the file only."""
    own: dict[str, Tensor] = {}
    for name, tensor in tensors.items() if isinstance(tensors, Mapping) else tensors:
        # a stage's parameters are views of one buffer, and the format refuses shared memory
        own[name] = tensor.detach().to(device="cpu", dtype=dtype, copy=True).contiguous()
        _refuse_overflow(path, name, own[name], tensor)
    save_as_is(path, own)


def save_as_is(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """The same in the types that tensors have, none of which share memory."""
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with explain_write_errors(path):
        from safetensors.torch import save_file

        save_file(whole, str(path), metadata={"format": "pt"})
        sync_path(path)


def _refuse_overflow(path: Path, name: str, written: Tensor, original: Tensor) -> None:
    """Refuse numbers that were finite and are not in the type that they are written in."""
    narrower = torch.finfo(written.dtype).max < torch.finfo(original.dtype).max
    if narrower and bool(written.isinf().any()) and not bool(original.isinf().any()):
        most = original.abs().max().item()
        raise ShapeError(
            f"{path}: {name} has numbers up to {most:.4g}, beyond those of "
            f"{str(written.dtype).removeprefix('torch.')}",
            hint="write it in a wider type",
        )


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn what goes wrong while a file is written into an error that names it."""
    library = _library()
    try:
        yield
    except (library.SafetensorError, OSError) as error:
        raise RunError(
            f"{path} cannot be written: {_cause(error)}",
            hint="what was saved before is untouched; see that the disk has room and is writable",
        ) from error


def _cause(error: Exception) -> str:
    """What the system or the library says, which repeats names of any length."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)[:MOST_LETTERS]


def _library() -> Any:
    try:
        import safetensors
    except ImportError as error:
        raise ShapeError(
            "Hugging Face files need the package safetensors, which is not installed",
            hint="pip install 'penstock[hf]'",
        ) from error
    return safetensors

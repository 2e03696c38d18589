"""What stands beside the weights of a Hugging Face folder, and is not to be lost on the way.

Token ids, how text is generated, the tokenizer, a chat template: training changes none of them, but
whoever loads the result needs them. So a model that came from such a folder is written with
everything of it but the weights, whether it is known here or not.
"""

import os
import shutil
from collections.abc import Collection, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from penstock.arch.config import ModelConfig
from penstock.arch.families import stated_dtype, to_huggingface
from penstock.files.durable import sync_path
from penstock.model.io.safetensors_files import explain_write_errors, locate, read_json, tensors_in

CONFIG = "config.json"

WEIGHTS = (
    *("*.safetensors", "*.index.json", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.gguf"),
    *("*.h5", "*.msgpack", "*.onnx", "*.onnx_data", "*.npz"),
)
"""Names of files with weights, in the formats that such folders have them in."""

TOKENIZER = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("tokenizer.model", "vocab.json", "merges.txt", "chat_template.jinja"),
)
"""Names of the files that a tokenizer consists of."""


class KeptFiles(NamedTuple):
    """What a written model has beside its weights."""

    stated: Mapping[str, Any]
    """The `config.json` of the folder that the model came from; empty where it came from none."""
    files: Mapping[str, Path]
    """Paths to copy from, by their names in the folder that is written."""
    source: Path | None = None
    """The folder that the model came from."""

    @property
    def names(self) -> set[str]:
        """What stands in the written folder itself: files, and folders of files."""
        return {name.partition("/")[0] for name in self.files}

    def config(self, model: ModelConfig, dtype: str) -> dict[str, Any]:
        """The `config.json` to write: that of the source, with the type that is stored now."""
        stated = dict(self.stated or to_huggingface(model))
        key = "dtype" if "dtype" in stated else "torch_dtype"
        return {**stated, key: dtype}

    def copy_to(self, folder: Path) -> None:
        """Copy the files and see them on the disk."""
        for name, source in self.files.items():
            target = folder / name
            with explain_write_errors(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
                sync_path(target)


NOTHING_KEPT = KeptFiles({}, {})


def kept_of_model(folder: Path) -> KeptFiles:
    """Everything of a Hugging Face folder but its weights and what is hidden."""
    found: dict[str, Path] = {}
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(base) / name
            if _is_kept(name) and path.is_file():  # and not a pipe, which would never end
                found[path.relative_to(folder).as_posix()] = path
    found.pop(CONFIG, None)
    return KeptFiles(read_json(folder / CONFIG), found, folder)


def kept_of_tokenizer(path: Path) -> KeptFiles:
    """The tokenizer that a run has used: its file, or those of its folder."""
    if path.is_file():
        return KeptFiles({}, {TOKENIZER[0]: path})
    return KeptFiles({}, {name: path / name for name in TOKENIZER if (path / name).is_file()})


def stored_dtype(folder: Path) -> str:
    """The type that the weights of a folder are stored in, as torch calls it."""
    if stated := stated_dtype(read_json(folder / CONFIG)):
        return stated
    name, file = next(iter(locate(folder).items()))
    ((_, tensor),) = tensors_in(folder / file, [name])
    return str(tensor.dtype).removeprefix("torch.")


def _is_kept(name: str) -> bool:
    return not name.startswith(".") and not any(fnmatch(name, pattern) for pattern in WEIGHTS)


def is_own(name: str, own: Collection[str], kept: KeptFiles) -> bool:
    """Whether a folder that has this in it may have been written here."""
    return name in kept.names or any(fnmatch(name, pattern) for pattern in own)

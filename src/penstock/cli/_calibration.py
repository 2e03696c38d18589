"""What `penstock fuse` measures with: the weights of a folder, and some sequences of data."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.arch.config import ModelConfig
from penstock.cli._data_settings import data_cache, data_settings
from penstock.cli._progress import show_bytes
from penstock.data.settings import DataSettings

if TYPE_CHECKING:
    from penstock.fusion.residual_stream import Sequence

TOKENIZER_FILE = "tokenizer.json"


class CalibrationSize(NamedTuple):
    """How much data is measured with, and which."""

    sequences: int
    length: int
    seed: int

    def __str__(self) -> str:
        return f"{self.sequences} sequences of {self.length:,} tokens, seed {self.seed}"


def calibration_data(
    model: ModelConfig, folder: Path, files: list[str] | None, size: CalibrationSize
) -> "list[Sequence]":
    """Sequences of some files, or of the sources of Python's standard library."""
    from penstock.data import open_data
    from penstock.fusion.residual_stream import Sequence

    settings = _settings(folder, files or [])
    model.refuse_length(size.length)
    with show_bytes("tokenising") as progress:
        sizes = (size.length, model.vocabulary, size.seed)
        data = open_data(settings, *sizes, data_cache(), progress)
    return [Sequence(data.train.sample(number)) for number in range(size.sequences)]


def _settings(folder: Path, files: list[str]) -> DataSettings:
    """The tokenizer is that of the model, unless a configuration names another."""
    own = str(folder) if (folder / TOKENIZER_FILE).exists() else "byte"
    if not files:
        return DataSettings(tokenizer=own)
    found, _ = data_settings(files, {})
    named = found.tokenizer != "byte" or found.source == "tokens"
    return found if named else replace(found, tokenizer=own)

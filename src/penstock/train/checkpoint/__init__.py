"""Checkpoints: asynchronous, hashed, loaded under any layout, never half there."""

from pathlib import Path

from penstock.model.io.tensor_block import TensorBlock
from penstock.train.checkpoint.find import Found, at_step, newest
from penstock.train.checkpoint.load import load_part, stored_kinds
from penstock.train.checkpoint.outline import TensorKind
from penstock.train.checkpoint.ranks import Ranks
from penstock.train.checkpoint.saver import Checkpoints

__all__ = [
    "Checkpoints",
    "Found",
    "TensorBlock",
    "TensorKind",
    "load_part",
    "newest_in",
    "stored_in",
    "stored_kinds",
]


def newest_in(folder: str | Path) -> Found | None:
    """The newest whole checkpoint of a folder, for one process that only reads it."""
    return newest(Path(folder), Ranks())


def stored_in(folder: str | Path, step: int) -> Found:
    """The checkpoint of one step, for one process that only reads it."""
    return at_step(Path(folder), step, Ranks())

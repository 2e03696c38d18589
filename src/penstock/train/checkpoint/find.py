"""The newest checkpoint that is whole.

A damaged checkpoint must not be loaded, and must not be passed over in silence either: the older
one that is used instead costs the steps between. All ranks must take the same one. So the first
rank lists them, every rank reads a share of the files, and the verdict is that of all together. In
the end each looks whether the one that was chosen is the same where it reads it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from warnings import warn

from penstock.errors import RunError
from penstock.files.regular import read_regular
from penstock.train.checkpoint import manifest
from penstock.train.checkpoint.folders import checkpoint_path, steps
from penstock.train.checkpoint.ranks import Ranks


@dataclass(frozen=True)
class Found:
    """A checkpoint that was read whole; its `state` is what was saved beside the tensors."""

    step: int
    folder: Path
    state: dict[str, Any]
    damaged: tuple[str, ...] = ()
    """What is wrong with each newer one, which therefore is not used."""


def newest(folder: Path, ranks: Ranks) -> Found | None:
    """The newest whole checkpoint, the same on all ranks; None where there is no checkpoint."""
    damaged: list[str] = []
    for step in reversed(ranks.first(lambda: steps(folder) if folder.is_dir() else [])):
        complaints = _complaints(checkpoint_path(folder, step), step, ranks)
        if not complaints:
            return _found(checkpoint_path(folder, step), step, damaged, ranks)
        damaged.append(
            f"{checkpoint_path(folder, step).name} is damaged: {'; '.join(complaints[:3])}"
        )
    if damaged:
        raise RunError(
            f"no checkpoint in {folder} is complete: {'. '.join(damaged)}",
            hint="restore one from a backup, or move them all away to start from the beginning",
        )
    return None


def _complaints(path: Path, step: int, ranks: Ranks) -> list[str]:
    """What is wrong with a checkpoint; the files are dealt out to the ranks, large ones first."""
    files, complaint = ranks.first(lambda: _listed(path, step))
    if complaint:
        return [complaint]
    share = sorted(files, key=lambda name: -files[name].size)[ranks.rank :: ranks.size]
    found = ranks.together(lambda: manifest.damage(path, {name: files[name] for name in share}))
    damaged = [complaint for complaints in found for complaint in complaints]
    return damaged or ranks.first(lambda: _left_out(path, files))


def _left_out(path: Path, files: manifest.Files) -> list[str]:
    """Files that hold tensors and that the manifest does not speak of; the description is whole."""
    from penstock.train.checkpoint.storage import files_with_tensors  # deferred: see there

    try:
        complaint = manifest.not_listed(files_with_tensors(path), files)
    except RunError as error:
        complaint = error.message
    return [complaint] if complaint else []


def _listed(path: Path, step: int) -> tuple[dict[str, manifest.FileEntry], str]:
    try:
        return manifest.read_manifest(path, step), ""
    except RunError as error:
        return {}, error.message


def _found(path: Path, step: int, damaged: list[str], ranks: Ranks) -> Found:
    _refuse_others(path, step, ranks)
    state = ranks.first(lambda: json.loads(read_regular(path / manifest.STATE)))
    if damaged and ranks.leads:
        warn(f"{'. '.join(damaged)}. Using {path.name} instead", stacklevel=2)
    return Found(step, path, state, tuple(damaged))


def _refuse_others(path: Path, step: int, ranks: Ranks) -> None:
    """Refuse where a rank finds another checkpoint under the same name, on a disk of its own."""
    seen = ranks.together(lambda: manifest.content_digest(path, step))
    odd = next((rank for rank, digest in enumerate(seen) if digest != seen[0]), None)
    if odd is not None:
        raise RunError(
            f"{path} is another checkpoint for rank {odd} than for rank 0",
            hint="give a folder that all machines share",
        )


def at_step(folder: Path, step: int, ranks: Ranks) -> Found:
    """The checkpoint of one step, the same on all ranks."""
    path = checkpoint_path(folder, step)
    if complaints := _complaints(path, step, ranks):
        known = ", ".join(map(str, ranks.first(lambda: steps(folder) if folder.is_dir() else [])))
        raise RunError(
            f"{path} cannot be used: {'; '.join(complaints[:3])}",
            hint=f"there are checkpoints of step {known}" if known else "there is no checkpoint",
        )
    return _found(path, step, [], ranks)

"""Which data a command line means: files, told by their endings, or those of a configuration."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli._needs import need_pydantic
from penstock.data.settings import SOURCES, DataSettings
from penstock.data.stats.policies import BatchRule
from penstock.errors import ShapeError, shown

if TYPE_CHECKING:
    from penstock.train.config.settings import Settings

RECORDS, ARRAYS = (".jsonl", ".parquet", ".arrow"), (".npy", ".bin")
"""Endings that tell what a file holds; others are text."""


def data_settings(files: list[str], given: dict[str, Any]) -> tuple[DataSettings, BatchRule]:
    """What is read, and the sizes that a configuration says, 0 where it says none."""
    if len(files) == 1 and files[0].endswith(".toml"):
        need_pydantic()
        from penstock.train.config.load import load

        found = load(Path(files[0]))
        return replace(found.data, **given), _planned(found)
    source: Any = given.pop("source", "") or _source(files)
    if source not in SOURCES:
        raise ShapeError(
            f"there is no source {shown(source)}", hint=f"one of: {', '.join(SOURCES)}"
        )
    return DataSettings(paths=tuple(files), **given, source=source), BatchRule(0, 0, 0)


def _planned(found: "Settings") -> BatchRule:
    """The sizes of a run."""
    batch = found.batch
    whole = found.mesh.replicas * batch.microbatches * batch.rows * batch.length
    return BatchRule(batch.length, batch.tokens or whole, found.data.slice_tokens)


def _source(files: list[str]) -> str:
    """What files hold, by their endings; a folder holds records, or else arrays, or else text.

    >>> _source(["a.jsonl", "b.parquet"]), _source(["a.npy"]), _source(["books/*.txt"])
    ('records', 'tokens', 'text')
    """
    endings = {ending for file in files for ending in _endings(file)}
    if endings <= set(ARRAYS):
        return "tokens"
    if endings <= set(RECORDS):
        return "records"
    if endings & {*RECORDS, *ARRAYS}:
        named = ", ".join(sorted(ending or "none" for ending in endings))
        raise ShapeError(
            f"files of several kinds, by their endings: {named}",
            hint="name those of one kind, or say what all of them hold with --source",
        )
    return "text"


def _endings(file: str) -> set[str]:
    """The ending of a file; of a folder those of the records in it, or else of the arrays."""
    if not os.path.isdir(file):
        return {Path(file).suffix}
    inside = {each.suffix for each in Path(file).rglob("*")}
    return inside & set(RECORDS) or inside & set(ARRAYS) or {""}


def data_cache() -> Path:
    """Where tokens are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"

"""Clusters as a user names them: `h100:64`, or a TOML file of their own.

A file says only what differs where it is `like` a named cluster:

    like = "h100"
    gpus = 64

    [network]
    cards = 4

What is wrong with a file is told with line and column, all of it at once, and an unknown key with
the nearest known one.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path as File
from typing import Any, NamedTuple

from penstock.cluster.cluster import MOST_GPUS, Cluster
from penstock.cluster.keys import HOST_MEMORY, KEYS, PEAK, cluster_of, values_of
from penstock.cluster.presets import CLUSTERS, preset_cluster
from penstock.errors import FormatError, ShapeError, nearest, shown
from penstock.files.regular import read_regular
from penstock.files.toml_places import Path, line_of, parse, places

LARGEST_CLUSTER_FILE = 100_000
MOST_MISTAKES = 10
"""Mistakes that are told at once; a file with more of them is of another kind."""
OPTIONAL = (*((*PEAK, name) for name in ("fp16", "fp32")), HOST_MEMORY)
"""A GPU may have no peak for these types, and the memory of hosts need not be known."""


def read_cluster(text: str) -> Cluster:
    """The cluster that `NAME:GPUS`, `FILE.toml` or `FILE.toml:GPUS` stands for.

    >>> read_cluster("h100:64").gpus
    64
    """
    name, colon, count = text.rpartition(":") if _ends_in_count(text) else (text, "", "")
    found = _file(File(name)) if name.endswith(".toml") else preset_cluster(name)
    return replace(found, gpus=_count(count, text)) if colon else found


def _ends_in_count(text: str) -> bool:
    """Whether a size follows the name; `a:b.toml` is a file."""
    return ":" in text and not text.endswith(".toml")


def _count(count: str, text: str) -> int:
    if not (count.isascii() and count.isdecimal() and 0 < int(count[:9]) <= MOST_GPUS):
        raise ShapeError(
            f"--cluster {shown(text)}: {shown(count)} is not a number of GPUs",
            hint=f"write NAME:GPUS, for example h100:64; at most {MOST_GPUS:,}",
        )
    return int(count)


def _file(path: File) -> Cluster:
    try:
        text = read_regular(path, LARGEST_CLUSTER_FILE).decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ShapeError(
            f"cannot read {shown(str(path), 300)}: {reason}",
            hint=f"give a TOML file, or one of: {', '.join(CLUSTERS)}",
        ) from None
    try:
        return cluster_from(text, path.stem, str(path))
    except FormatError as error:
        raise ShapeError(f"{path}, {error.message}", hint=error.hint) from None


class _Mistake(NamedTuple):
    path: Path
    message: str
    hint: str


def cluster_from(text: str, name: str, file: str = "the cluster") -> Cluster:
    """The cluster that the text of a file says, called `name`."""
    tables = parse(text)
    found = [*islice(_mistakes(tables), MOST_MISTAKES + 1)]
    if found:
        raise _complaint(found, text, file)
    like = tables.pop("like", None)
    values: dict[Path, Any] = values_of(preset_cluster(like)) if like else {}
    values |= dict(_flat(tables))
    missing = [_named(key) for key in KEYS if key not in values and key not in OPTIONAL]
    if missing:
        raise ShapeError(
            f"{file} says nothing of {', '.join(missing)}",
            hint=f'give them, or write like = "NAME" first; NAME is one of {", ".join(CLUSTERS)}',
        )
    return cluster_of(name, values)


def _mistakes(tables: dict[str, Any]) -> Iterator[_Mistake]:
    like = tables.get("like", next(iter(CLUSTERS)))
    if not (isinstance(like, str) and like in CLUSTERS):
        hint = nearest(str(like)[:40], list(CLUSTERS))
        yield _Mistake(("like",), f"like is {shown(like)}, which is not a cluster", hint)
    for path, value in _flat({name: each for name, each in tables.items() if name != "like"}):
        key = KEYS.get(path)
        if key is None:
            yield _unknown(path)
        elif not key.takes(value):
            yield _Mistake(path, f"{_named(path)} is {shown(value)}", f"give {key.wanted}")


def _unknown(path: Path) -> _Mistake:
    """A key that is not known: the first of its names that is wrong, and what could be there."""
    depth = next((d for d in range(len(path)) if path[d] not in _inside(path[:d])), len(path))
    if depth == len(path):
        hint = f"write [{_named(path)}] above its keys"
        return _Mistake(path, f"{_named(path)} is a table, and not a value", hint)
    known = _inside(path[:depth]) + ["like"] * (depth == 0)
    hint = nearest(path[depth][:40], known) if known else f"{_named(path[:depth])} is a value"
    return _Mistake(path, f"the key {shown(_named(path))} is not known", hint)


def _inside(table: Path) -> list[str]:
    """Names that a table may have."""
    depth = len(table)
    names = (key[depth] for key in KEYS if key[:depth] == table and len(key) > depth)
    return [*dict.fromkeys(names)]


def _flat(tables: dict[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every key with its path; a table that should be a value is one that no key takes."""
    for name, value in tables.items():
        path = (*above, name)
        if isinstance(value, dict) and path not in KEYS:
            yield from _flat(value, path)
        else:
            yield path, value


def _named(path: Path) -> str:
    return ".".join(path)


def _complaint(mistakes: list[_Mistake], text: str, file: str) -> ShapeError:
    """All mistakes as one error, in the order of the file."""
    offsets = places(text)
    mistakes.sort(key=lambda mistake: offsets.get(mistake.path, -1))
    told = []
    for path, message, hint in mistakes:
        line, column = line_of(text, offsets.get(path, 0))
        where = f"line {line}, column {column}: " if path in offsets else ""
        told.append((f"{where}{message}", hint))
    if len(told) == 1:
        return ShapeError(f"{file}, {told[0][0]}", hint=told[0][1])
    lines = [f"  {message}; {hint}" for message, hint in told[:MOST_MISTAKES]]
    count = len(told) if len(told) <= MOST_MISTAKES else f"more than {MOST_MISTAKES}"
    return ShapeError("\n".join([f"{file} has {count} mistakes", *lines]))

"""Profiles as files, and what a command line asks to be profiled."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import Any

from penstock.arch.config import ModelConfig
from penstock.bench.gpu import bench_model
from penstock.bench.run import read_bench_settings
from penstock.cluster.gpu import PRECISIONS
from penstock.errors import FormatError, ShapeError, shown
from penstock.estimate.named_model import named_model
from penstock.profiling.case import ProfileCase


def case_of(model: str, tokens: int, slices: int, precision: str) -> ProfileCase:
    """The case that a command line names."""
    if precision not in PRECISIONS:
        raise ShapeError(f"--precision {shown(precision)}", hint=f"one of: {', '.join(PRECISIONS)}")
    return ProfileCase(model, model_of(model), tokens, slices, precision)


def model_of(name: str) -> ModelConfig:
    """A registered model, one of the benchmarks, or that of a config.json."""
    if name.endswith(".json"):
        return named_model(name)
    return bench_model(read_bench_settings()["gpu"], name)


@contextmanager
def told_as_mistakes(*paths: Path) -> Iterator[None]:
    """Around work with profiles from files: one that lacks something is refused in words."""
    try:
        yield
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        ZeroDivisionError,
    ) as error:
        names = " or ".join(repr(str(path)) for path in paths)
        raise FormatError(
            f"{names} lacks a part of a profile, or it has another type: {shown(str(error), 80)}",
            hint="give files that `penstock profile --out` has written",
        ) from None


def record_text(record: Mapping[str, Any]) -> str:
    """A profile as a file has it."""
    return dumps(record, indent=1) + "\n"

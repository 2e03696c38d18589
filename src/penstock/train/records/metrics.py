"""What a run writes about itself, step by step, as lines of JSON.

`metrics.jsonl` holds what follows from the configuration alone (loss, norm, rate, tokens), so equal
runs write equal bytes, also one that was interrupted: a run that goes on from a checkpoint first
takes back the lines behind it. `timing.jsonl` holds what the machine did (speed, memory, bubble),
and `plans.jsonl` which plans came into force, in runs whose plan may change.

A line is written at once and whole; one that was cut off by a killed process is dropped when the
run goes on. Numbers are written with all their digits; one that is not finite is written as null.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.errors import RunError
from penstock.files.durable import write_file

METRICS = "metrics.jsonl"
TIMING = "timing.jsonl"
PLANS = "plans.jsonl"


@dataclass(frozen=True)
class Metrics:
    """One step as the configuration determines it."""

    step: int
    """Steps done, this one included."""
    loss: float
    """Mean over the labels that count in the global batch."""
    norm: float
    """Global norm of the gradients before clipping."""
    rate: float
    tokens: int
    """Tokens of all steps up to this one."""
    evaluation: float | None = None
    """Loss on held-out data, in steps that evaluate."""


@dataclass(frozen=True)
class Timing:
    """One step as the machine did it."""

    step: int
    seconds: float
    tokens_per_second: float
    utilisation: float | None
    """Model FLOPs over what the devices could do; None where that is not known."""
    memory: tuple[int, ...]
    """Peak bytes of each process, by rank."""
    bubble: float | None
    """Idle share of the devices, from the first op to the last of the longest lane; None where no
    spans were recorded."""
    time: float
    """Seconds since 1970 at the end of the step."""
    plan: str | None = None
    """The plan in force, where it may change."""
    planning: float | None = None
    """Seconds that the plan of the step took to make, where each batch has its own."""
    plan_wait: float | None = None
    """Seconds of that for which the step waited; the rest passed during the step before."""


@dataclass(frozen=True)
class PlanRecord:
    """A plan that has come into force."""

    step: int
    """Steps done before it."""
    plan: str
    why: str
    before: float | None = None
    """Predicted seconds of a step under the plan before."""
    after: float | None = None
    """Predicted seconds of a step under this one."""


Record = Metrics | Timing | PlanRecord


class Lines:
    """A file of JSON lines that only grows, opened behind what an earlier run left valid."""

    def __init__(self, path: Path, done: int) -> None:
        self.path = path
        with _worded(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            take_back(path, done)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def write(self, record: Record) -> None:
        """Add a line, whole, so that a reader and a killed process find no half of it."""
        line = memoryview(record_line(record).encode())
        with _worded(self.path):
            while line:
                line = line[os.write(self._file, line) :]

    def sync(self) -> None:
        """Return once everything written is on the disk."""
        with _worded(self.path):
            os.fsync(self._file)

    def close(self) -> None:
        with _worded(self.path):
            os.close(self._file)


@contextmanager
def _worded(path: Path) -> Iterator[None]:
    """Turn a failure of the file system into our own error."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write {str(path)!r}: {error.strerror}",
            hint="free space or choose another run.directory; the checkpoints are untouched",
        ) from error


def record_line(record: Record) -> str:
    """A record as one line; what is None is left out."""
    values = {key: _finite(value) for key, value in asdict(record).items() if value is not None}
    return json.dumps(values, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def take_back(path: Path, done: int) -> None:
    """Keep the lines of the first `done` steps, in one stroke.

    A last line that was cut off goes. Where more than that would be lost, because the file is
    damaged elsewhere or belongs to a run that is started anew, it is kept beside the new one.
    """
    if not path.is_file():  # a device or a pipe has no lines to take back
        return
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    steps = [_step(line) for line in lines]
    kept = b"".join(line for line, step in zip(lines, steps) if step is not None and step <= done)
    if kept == content:
        return
    if None in steps[:-1] or not done:
        write_file(path.with_name(f"{path.name}.previous"), content)
    write_file(path, kept, path.with_name(f".{path.name}.new"))


def _step(line: bytes) -> int | None:
    """The step of a line, or None where it is damaged."""
    try:
        step = json.loads(line)["step"] if line.endswith(b"\n") else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return step if type(step) is int else None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a file that can be read, in order."""
    lines: Iterable[bytes] = path.read_bytes().splitlines(keepends=True) if path.is_file() else ()
    return [json.loads(line) for line in lines if _step(line) is not None]

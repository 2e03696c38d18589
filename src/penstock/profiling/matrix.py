"""The same step with one thing switched at a time, side by side.

A cell is a step with some switches, joined by `+`. Each runs in a process of its own, so that none
finds what another left. A step that the memory does not suffice for is a result like any other.
Cells go to a file line by line as they are done: what is there already is not run again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import dumps, loads
from pathlib import Path
from typing import Any

from penstock.errors import FormatError, ShapeError, nearest
from penstock.files.durable import replacement
from penstock.files.json_object import decode_json
from penstock.profiling.case import ProfileCase

PLAIN = "plain"
"""The cell without switches."""
SWITCHES: Mapping[str, str] = {
    "recompute": "every forward runs again before its backward",
    "offload": "activations wait on the host",
    "other-precision": "fp32 instead of 16 bits, or bf16 instead of fp32",
    "plain-kernels": "PyTorch's kernels instead of fused ones",
}
EXCLUDING = ({"recompute", "offload"},)
"""Switches that do not go together: what is computed again is not kept."""
_BEGIN = '{"model": '
"""Of the line of every cell."""
OTHER_PRECISION = {"bf16": "fp32", "fp16": "fp32", "fp32": "bf16"}


@dataclass(frozen=True)
class MatrixCell:
    """A step with some switches."""

    case: ProfileCase
    switches: tuple[str, ...]

    @property
    def name(self) -> str:
        return "+".join(self.switches) or PLAIN

    @property
    def key(self) -> dict[str, Any]:
        """What tells it from other cells, in a file."""
        return self.case.record() | {"cell": self.name}

    @property
    def changes(self) -> tuple[str, ...]:
        """Of the schedule."""
        return tuple(name for name in self.switches if name in ("recompute", "offload"))

    @property
    def switched(self) -> ProfileCase:
        """The case in its own precision."""
        if "other-precision" not in self.switches:
            return self.case
        other = OTHER_PRECISION[self.case.precision]
        case = self.case
        return ProfileCase(case.name, case.sizes, case.tokens, case.slices, other)


def cells_of(case: ProfileCase, names: Sequence[str]) -> Iterator[MatrixCell]:
    """The plain step, and each of the cells that are named; all switches one by one where none
    is."""
    yield MatrixCell(case, ())
    for name in names or SWITCHES:
        switches = tuple(name.split("+"))
        for each in switches:
            if each not in SWITCHES:
                raise ShapeError(f"no switch is called {each!r}", hint=nearest(each, [*SWITCHES]))
        for pair in EXCLUDING:
            if pair <= set(switches):
                raise ShapeError(
                    f"{name} has {' and '.join(sorted(pair))}", hint="give one of them in a cell"
                )
        yield MatrixCell(case, switches)


def known_rows(path: Path) -> list[dict[str, Any]]:
    """Cells of a file, of an interrupted run too: a last line that was cut off does not count."""
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise FormatError(
            f"cannot read {str(path)!r}: {reason}", hint="give another file"
        ) from None
    found = []
    for number, line in enumerate(lines):
        if number + 1 == len(lines) and _cut_off(line):
            break
        row = decode_json(line, f"line {number + 1} of {str(path)!r}")
        if not isinstance(row, dict) or "cell" not in row or "status" not in row:
            raise FormatError(
                f"line {number + 1} of {str(path)!r} is not a cell", hint="give another file"
            )
        found.append(row)
    return found


def _cut_off(line: str) -> bool:
    """Whether a last line is the begin of a cell. A whole object without an end of its line is read
    like others, so that a file of something else is refused and not written over."""
    if line.endswith("\n") or not (line.startswith(_BEGIN) or _BEGIN.startswith(line)):
        return False
    try:
        loads(line)
    except ValueError:
        return True
    return False


def keep_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write cells anew, without what was cut off. An interrupt leaves the file as it was."""
    with replacement(path) as file:
        file.write("".join(dumps(row) + "\n" for row in rows).encode())


def row_of(rows: Sequence[Mapping[str, Any]], cell: MatrixCell) -> Mapping[str, Any] | None:
    """The row of a cell, where it has one."""
    return next((row for row in rows if cell.key.items() <= row.items()), None)

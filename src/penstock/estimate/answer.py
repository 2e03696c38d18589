"""Estimates as scripts read them, one by one or many rows at once."""

from collections.abc import Iterable, Iterator, Mapping
from json import dumps
from typing import Any

from penstock.core.collector import collector_resting
from penstock.core.kernel import compile_small_work
from penstock.errors import PenstockError, ShapeError, shown
from penstock.estimate.price import Estimate, estimate
from penstock.estimate.reasons import reasons
from penstock.estimate.request import layout_from
from penstock.files.json_object import decode_json

LONGEST_ROW = 100_000
"""Characters of a line."""


def estimate_record(found: Estimate) -> dict[str, Any]:
    """The fields of an estimate: seconds, and bytes of one rank of each device."""
    mesh = found.layout.mesh
    return {
        "step_seconds": found.seconds,
        "tokens_per_second": found.tokens_per_second,
        "flops_utilisation": found.flops_utilisation,
        "hardware_utilisation": found.hardware_utilisation,
        "bubble": found.bubble,
        "exposed_communication_seconds": found.exposed,
        "peak_bytes": [each._asdict() | {"total": each.total} for each in found.memory],
        "host_bytes": found.host,
        "fits": found.fits,
        "reasons": reasons(found),
        "replicas": mesh.replicas,
        "ring": mesh.ring,
        "microbatches": found.layout.microbatches,
        "layers": [*found.layers],
    }


def answer_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one row, or what is wrong with it."""
    try:
        return estimate_record(estimate(layout_from(row)))
    except PenstockError as error:
        return {"error": error.message, "hint": error.hint}


def answer_lines(lines: Iterable[str]) -> Iterator[str]:
    """An answer for each line that is not empty, in their order."""
    with compile_small_work():
        for line in lines:
            if line.strip():
                yield dumps(_answer_line(line))


def _answer_line(line: str) -> dict[str, Any]:
    try:
        with collector_resting():
            return answer_row(_row(line))
    except PenstockError as error:
        return {"error": error.message, "hint": error.hint}
    except Exception as error:  # the other rows are right, and are to be answered all the same
        return {
            "error": f"{type(error).__name__}: {error}",
            "hint": "this is a mistake of Penstock, not of the row: please report both",
        }


def _row(line: str) -> dict[str, Any]:
    if len(line) > LONGEST_ROW:
        raise ShapeError(
            f"a row has {len(line):,} characters", hint=f"give at most {LONGEST_ROW:,}"
        )
    try:
        row = decode_json(line, "the row")
    except RecursionError:
        raise ShapeError("the row is nested too deeply", hint="nest less") from None
    except ValueError as error:
        raise ShapeError(f"the row cannot be read: {error}", hint="give a JSON object") from None
    if not isinstance(row, dict):
        raise ShapeError(f"the row is {shown(row)}", hint="give a JSON object on one line")
    return row

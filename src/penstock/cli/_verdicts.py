"""Verdicts of the verifier, as the fields that scripts depend on and as a table for people."""

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from penstock.cli._output import emit, emit_table
from penstock.cli._record import plain, slices
from penstock.draw.words import count_of

if TYPE_CHECKING:
    from penstock.verify.verifier import VerdictRow


def verdict_record(row: "VerdictRow") -> dict[str, Any]:
    """The fields that scripts depend on."""
    shape = row.trial.schedule.shape
    return {
        "name": row.trial.schedule.name,
        "variant": row.trial.variant,
        "devices": shape.devices,
        "replicas": row.trial.replicas,
        "tensor": row.trial.cell.tensor,
        "sequence": row.trial.cell.sequence,
        "ring": row.trial.cell.ring,
        "shard": row.trial.shard,
        "microbatches": shape.microbatches,
        "chunks": plain(shape.chunks),
        "slices": slices(shape),
        "device": row.trial.scale.device,
        "dtype": row.trial.dtype,
        "tolerance": row.tolerance.gradient,
        "loss_error": _or_null(row.difference.loss),
        "grad_error": _or_null(row.difference.gradient),
        "worst": row.difference.parameter,
        "bit_equal": row.bit_equal,
        "equal": row.equal,
        "seconds": round(row.seconds, 3),
        **_beside_one_process(row),
    }


def _beside_one_process(row: "VerdictRow") -> dict[str, Any]:
    """What is said where bits are not claimed, as on a GPU."""
    apart = row.from_one_process
    if apart is None:
        return {}
    return {
        "back_end": row.back_end or None,
        "loss_tolerance": row.tolerance.loss,
        "difference_from_one_process": _or_null(apart.gradient),
        "loss_difference_from_one_process": _or_null(apart.loss),
    }


def _or_null(error: float) -> float | None:
    """JSON has no infinity."""
    return error if isfinite(error) else None


def worst_of(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One schedule's rows under its largest errors."""
    return {
        "name": records[0]["name"],
        **{field: _largest(records, field) for field in ("loss_error", "grad_error")},
        "equal": all(record["equal"] for record in records),
        "rows": list(records),
    }


def _largest(records: Sequence[dict[str, Any]], field: str) -> float | None:
    errors = [record[field] for record in records]
    return None if None in errors else max(errors)


def print_verdicts(rows: Sequence["VerdictRow"]) -> None:
    beside = "bits" if all(row.from_one_process is None for row in rows) else "from one process"
    head = ("name", "variant", "p", "m", "v", "k", "loss error", "gradient error", beside, "equal")
    emit_table(head, [_cells(row) for row in rows])
    emit("")
    for row in rows:
        if not row.equal:
            emit(f"{row.trial.schedule.name} {row.trial.variant}: {row.explanation}")
    unequal = sum(not row.equal for row in rows)
    outcome = f"{unequal} not equal" if unequal else "all equal"
    emit(f"{count_of(len(rows), 'row')}, {outcome}, {_largest_errors(rows)}")
    for place, equal in _equal_by_place(rows).items():
        emit(f"{sum(equal)} of {len(equal)} equal on {place}")


def _cells(row: "VerdictRow") -> tuple[str, ...]:
    record = verdict_record(row)
    replicas = f" x {row.trial.replicas}" if row.trial.replicas > 1 else ""
    cell = f" of {row.trial.cell.text}" if row.trial.cell.ranks > 1 else ""
    return (
        record["name"],
        record["variant"],
        f"{record['devices']}{replicas}{cell}",
        *(str(record[field]) for field in ("microbatches", "chunks", "slices")),
        f"{row.difference.loss:.0e}",
        f"{row.difference.gradient:.0e}",
        _beside(row),
        "yes" if row.equal else "NO",
    )


def _beside(row: "VerdictRow") -> str:
    """How the run compares with one process of the same slices."""
    if row.from_one_process is not None:
        return f"{row.from_one_process.gradient:.0e}"
    return {True: "same", False: "differ", None: "-"}[row.bit_equal]


def _equal_by_place(rows: Sequence["VerdictRow"]) -> dict[str, list[bool]]:
    """The verdicts by device and back end, where both were chosen; the CPU has only one."""
    found: dict[str, list[bool]] = {}
    for row in rows:
        if row.from_one_process is not None:
            place = " over ".join(filter(None, (row.trial.scale.device, row.back_end)))
            found.setdefault(place, []).append(row.equal)
    return found


def _largest_errors(rows: Sequence["VerdictRow"]) -> str:
    """The largest error of each type that was computed in."""
    errors: dict[str, float] = {}
    for row in rows:
        found = max(row.difference.loss, row.difference.gradient)
        errors[row.trial.dtype] = max(errors.get(row.trial.dtype, 0.0), found)
    parts = [f"{error:.0e} in {dtype}" for dtype, error in sorted(errors.items(), reverse=True)]
    return f"largest error {', '.join(parts)}"

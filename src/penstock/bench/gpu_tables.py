"""The results of `penstock bench gpu` as tables for people."""

from collections.abc import Callable, Iterator
from typing import Any

from penstock.bench.run import Result
from penstock.bench.tables import TextTable

GpuCells = tuple[str, ...]


def gpu_tables(result: Result) -> Iterator[TextTable]:
    """One table for each part that was measured."""
    for part, (head, cells) in TABLES.items():
        if part in result:
            yield head, [cells(row) for row in result[part]]


def _attention(row: Result) -> GpuCells:
    return (
        f"{row['heads']}/{row['kv_heads']} x {row['head_size']}",
        f"{sum(row['lengths']):,}",
        f"{row['whole_over_pytorch']:.3f}",
        f"{row['sliced_over_whole']:.3f}",
    )


def _steps(row: Result) -> GpuCells:
    return (
        *_case(row),
        row["reason"] or f"{row['seconds']:.3f}",
        row["baseline_reason"] or f"{row['baseline_seconds']:.3f}",
        _number(row["ratio"], ".3f"),
        _number(row["wanted"], ".2f"),
        _number(row["utilisation"], ".1%"),
        _number(row["baseline_utilisation"], ".1%"),
        _number(row["prediction_error"], "+.1%"),
        *(("", "", "") if row["reason"] else _gigabytes(row)),
        "" if row["baseline_bytes"] is None else f"{row['baseline_bytes'] / 1e9:.1f}",
    )


def _shared(row: Result) -> GpuCells:
    return row["schedule"], f"{row['tokens']:,}", str(row["slices"]), *_gigabytes(row)


def _breakdown(row: Result) -> GpuCells:
    if row["reason"]:
        return (*_case(row), row["reason"])
    parts = ", ".join(f"{label} {value:.3f}" for label, value in row["classes"].items() if value)
    gaps = f"{row['long_gaps']}, largest {row['largest_gap'] * 1e6:.0f} us"
    return (*_case(row), f"{row['seconds']:.3f}", f"{row['idle']:.3f}", gaps, parts)


def _offload(row: Result) -> GpuCells:
    ways = (f"{row[key] / 1e9:.1f}" for key in ("bytes_out_per_second", "bytes_back_per_second"))
    times = (f"{row[key]:.3f}" for key in ("seconds", "seconds_without", "ratio"))
    return (*_of_sequence(row), *ways, *times, f"{row['wanted']:.2f}", *_on_device_and_host(row))


def _offload_long(row: Result) -> GpuCells:
    slices = f"{row['offloaded_slices']} offloaded, {row['recomputed_slices']} recomputed"
    pace = f"{row['tokens_per_second']:,.0f}"
    return (*_of_sequence(row), slices, f"{row['seconds']:.1f}", pace, *_on_device_and_host(row))


def _of_sequence(row: Result) -> GpuCells:
    return row["model"], f"{row['tokens']:,}", str(row["slices"])


def _on_device_and_host(row: Result) -> GpuCells:
    sizes = (f"{row[key] / 1e9:.1f}" for key in ("predicted_bytes", "measured_bytes"))
    return (*sizes, _number(row["memory_error"], ".1%"), f"{row['host_bytes'] / 1e9:.1f}")


def _case(row: Result) -> GpuCells:
    name = "+".join([row["model"], *row["transforms"]])
    return name, f"{row['tokens']:,}", str(row["slices"])


def _number(value: Any, style: str) -> str:
    return "" if value is None else format(value, style)


def _gigabytes(row: Result) -> GpuCells:
    amounts = (row["predicted_bytes"], row["measured_bytes"])
    predicted, measured = (", ".join(f"{size / 1e9:.1f}" for size in sizes) for sizes in amounts)
    return predicted, measured, _number(row["memory_error"], ".1%")


_MEMORY = ("predicted GB", "measured GB", "difference")
_CASE = ("model", "tokens", "slices")

TABLES: dict[str, tuple[GpuCells, Callable[[Result], GpuCells]]] = {
    "attention": (("attention", "tokens", "whole / PyTorch", "slices / whole"), _attention),
    "steps": (
        (*_CASE, "seconds", "compiled model s", "ratio", "wanted", "utilisation", "compiled model")
        + ("predicted", *_MEMORY, "compiled model GB"),
        _steps,
    ),
    "shared": (("ranks that share the GPU", "tokens", "slices", *_MEMORY), _shared),
    "breakdown": (
        (*_CASE, "seconds", "idle s", "gaps above 20 us", "seconds by class"),
        _breakdown,
    ),
    "offload": (
        (*_CASE, "GB/s out", "GB/s back", "seconds", "without", "ratio", "wanted")
        + (*_MEMORY, "pinned GB"),
        _offload,
    ),
    "offload-long": (
        (*_CASE, "of these", "seconds", "tokens/s", *_MEMORY, "pinned GB"),
        _offload_long,
    ),
}

"""The results of `penstock bench run` as tables for people."""

from collections.abc import Iterator
from typing import Any

from penstock.bench.run import Result

TextTable = tuple[tuple[str, ...], list[tuple[str, ...]]]


def run_tables(results: Result) -> Iterator[TextTable]:
    """One table for each part that was measured."""
    parts = {
        "host": _host,
        "emulate": _emulate,
        "real": _real,
        "cells": _cells,
        "pairs": _pairs,
        "loans": _loans,
        "plans": _plans,
        "unequal": _unequal,
        "policies": _policies,
        "profile": _profile,
    }
    for name, table in parts.items():
        if name in results:
            yield table(results[name])


def _host(result: Result) -> TextTable:
    head = ("host time", "us per microbatch and stage", "ours / theirs", "wanted")
    rows: list[tuple[str, ...]] = [(result["schedule"], f"{result['microseconds']:.0f}", "", "")]
    rows += [
        (
            rival["name"],
            f"{rival['microseconds']:.0f}",
            f"{rival['ratio']:.2f}",
            f"{rival['target']:g} or less",
        )
        for rival in result["rivals"]
    ]
    return head, rows


def _emulate(result: Result) -> TextTable:
    head = ("emulated", "size", "simulated s", "measured s", "difference", "wanted")
    wanted = f"within {result['target']:.0%}"
    rows: list[tuple[str, ...]] = [
        (row["schedule"], row["size"], *_pair(row, "simulated", "measured"), wanted)
        if row["reason"] is None
        else (row["schedule"], row["size"], "", "", row["reason"], "")
        for row in result["schedules"]
    ]
    rival = result["rival"]
    rows.append(
        (
            rival["rival"],
            f"against {rival['schedule']} -k {rival['slices']}",
            "",
            f"{rival['rival_seconds']:.2f}",
            f"{rival['measured']:.2f} x slower",
            f"{rival['promised']:.2f} x",
        )
    )
    return head, rows


def _real(result: Result) -> TextTable:
    head = ("schedule", "tokens", "slices", "seconds", "predicted", "loss")
    rows: list[tuple[str, ...]] = []
    for length in result["lengths"]:
        rows += [(row["schedule"], f"{length['tokens']}", *_step(row)) for row in length["rows"]]
        if length["ratio"] is not None:
            best = f"best: {length['best']} -k {length['slices']}"
            ratio = f"{length['ratio']:.2f} x faster than {length['rival']}"
            same = f"same order {length['same_ratio']:.2f} x"
            rows.append((best, f"{length['tokens']}", "", ratio, same, ""))
    return head, rows


def _cells(result: Result) -> TextTable:
    head = ("schedule", "mesh", "tokens", "slices", "seconds", "PyTorch / ours", "loss")
    rows: list[tuple[str, ...]] = [
        (row["schedule"], row["mesh"], f"{length['tokens']}", f"{row['slices']}", *_cell_step(row))
        for length in result["lengths"]
        for row in length["rows"]
    ]
    return head, rows


def _plans(result: Result) -> TextTable:
    head = ("what is slow", "plan in force", "seconds", f"{result['schedule']} stays", "losses")
    adaptive, improving = result["adaptive"], result["improving"]
    rows = [
        (f"transfers, {1000 * phase['delay']:g} ms", *_changed(phase, adaptive))
        for phase in adaptive["phases"]
    ]
    rows.append(("the last stage", *_changed(improving, improving)))
    return head, rows


def _unequal(result: Result) -> TextTable:
    times = ("simulated s", "measured s", "difference", "simulated gain", "measured gain")
    head = ("schedule", "tokens", "slices", *times, "most tokens alive", "plan ms")
    rows: list[tuple[str, ...]] = [
        (
            row["schedule"],
            f"{row['tokens']:,}",
            f"{row['slices']}",
            *_pair(row, "simulated", "measured"),
            *(f"{row[key]:.2f} x" for key in ("simulated_gain", "measured_gain")),
            f"{row['alive']:,}",
            f"{1000 * row['planning']:.0f}",
        )
        for row in result["rows"]
    ]
    return head, rows


def _policies(result: Result) -> TextTable:
    times = ("predicted s", "measured s", "difference", "predicted gain", "measured gain")
    head = ("ops", "policy", "slices", *times, "plan s", "waited s", "step s", "loss")
    rows: list[tuple[str, ...]] = [
        (
            row["ops"],
            row["policy"],
            f"{row['slices']:.0f}",
            f"{row['predicted']:.2f}",
            f"{row['measured']:.2f}",
            f"{row['measured'] / row['predicted'] - 1:+.1%}",
            *(f"{row[key]:.2f} x" for key in ("predicted_gain", "measured_gain")),
            *(f"{row[key]:.3f}" for key in ("planning", "waiting", "step")),
            *_same_loss(row),
        )
        for row in result["rows"]
    ]
    return head, rows


def _same_loss(row: Result) -> tuple[str]:
    """The loss, where the same tokens were trained on."""
    if row["same_loss"] is None:
        return ("",)
    return (f"{row['loss']:.6f}" + ("" if row["same_loss"] else " differs"),)


def _changed(row: Result, part: Result) -> tuple[str, ...]:
    losses = "equal" if part["equal_losses"] else "different"
    return row["plan"], f"{row['seconds']:.3f}", f"{row['fixed_seconds']:.3f}", losses


def _cell_step(row: Result) -> tuple[str, ...]:
    if row["reason"] is not None:
        return row["reason"], "", ""
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    return f"{row['seconds']:.3f}", ratio, f"{row['loss']:.6f}"


def _pairs(result: Result) -> TextTable:
    head = ("schedule", "pairs", "tokens", "seconds", "waits in the cell", "share", "loss")
    rows: list[tuple[str, ...]] = [
        (
            row["schedule"],
            row["order"],
            f"{row['tokens']}",
            *(f"{row[key]:.3f}" for key in ("seconds", "waited")),
            f"{row['share']:.1%}",
            f"{row['loss']:.6f}",
        )
        for row in result["rows"]
    ]
    return head, rows


def _loans(result: Result) -> TextTable:
    times = ("seconds", "predicted s", "longest work s", "mean s")
    ratios = ("imbalance", "predicted", "difference")
    rows: list[tuple[str, ...]] = [
        (
            row["schedule"],
            f"{row['tokens']}",
            f"{row['attention']:.0%}",
            *(f"{row[key]:.2f}" for key in ("seconds", "predicted_seconds", "longest", "mean")),
            *(f"{row[key]:.3f}" for key in ("imbalance", "predicted")),
            f"{row['difference']:+.1%}",
            f"{row['loss']:.6f}" + ("" if row["equal_loss"] else " differs"),
        )
        for row in result["rows"]
    ]
    return ("schedule", "tokens", "attention", *times, *ratios, "loss"), rows


def _step(row: Result) -> tuple[str, ...]:
    if row["reason"] is not None:
        return f"{row['slices']}", row["reason"], "", ""
    error = row.get("prediction_error")
    predicted = "" if error is None else f"{error:+.1%}"
    return f"{row['slices']}", f"{row['seconds']:.3f}", predicted, f"{row['loss']:.6f}"


def _profile(result: Result) -> TextTable:
    head = ("operation", *(f"{row['tokens']} -k {row['slices']}" for row in result["rows"]))
    names = dict.fromkeys(name for row in result["rows"] for name in row["operations"])
    rows: list[tuple[str, ...]] = [
        ("all ops, CPU s", *(f"{row['seconds']:.3f}" for row in result["rows"])),
        ("page faults", *(f"{row['faults']:,}" for row in result["rows"])),
    ]
    rows += [
        (name, *(_seconds(row["operations"].get(name)) for row in result["rows"])) for name in names
    ]
    return head, rows


def _seconds(value: Any) -> str:
    return "" if value is None else f"{value:.3f}"


def _pair(row: Result, first: str, second: str) -> tuple[str, str, str]:
    return f"{row[first]:.2f}", f"{row[second]:.2f}", f"{row['error']:+.1%}"

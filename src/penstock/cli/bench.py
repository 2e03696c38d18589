"""`penstock bench`: how fast Penstock itself is."""

from collections.abc import Iterator
from typing import Any

import typer

from penstock.bench.core import read_settings, run
from penstock.cli._output import emit_json, emit_table, note
from penstock.cli._request import AsJson


def register(app: typer.Typer) -> None:
    benches = typer.Typer()
    benches.callback()(bench)
    benches.command("core")(bench_core)
    app.add_typer(benches, name="bench")


def bench() -> None:
    """Measure how fast Penstock itself is."""


def bench_core(as_json: AsJson = False) -> None:
    """Measure simulate, check and lower, and PyTorch on the same schedule. Best of 5 runs."""
    results = run(read_settings(), note)
    if as_json:
        emit_json(results)
    else:
        emit_table(("what", "size", "ops", "result", "wanted"), list(_rows(results)))


def _rows(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for name in ("simulate", "simulate_general", "check"):
        part = results[name]
        rates = (f"{part[key] / 1e6:.1f} M ops/s" for key in ("ops_per_second", "target"))
        yield name, _size(part), f"{part['ops']:,}", *rates
    build = results["build"]
    ratio = build["reason"] or f"{build['ratio']:.0f} x faster than PyTorch"
    result = f"{build['seconds'] * 1e3:.1f} ms, {ratio}"
    yield "build", _size(build), f"{build['ops']:,}", result, f"{build['target']} x"
    memory = results["memory"]
    for size in memory["sizes"]:
        yield (
            "memory",
            memory["schedule"],
            f"{size['ops']:,}",
            f"{size['bytes_per_op']:.0f} bytes per op",
            f"within {memory['target']} x",
        )


def _size(part: dict[str, Any]) -> str:
    letters = {"p": "devices", "m": "microbatches", "v": "chunks", "k": "slices"}
    return " ".join([part["schedule"], *(f"-{key} {part[name]}" for key, name in letters.items())])

"""`penstock bench`: how fast Penstock itself is."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from penstock.bench.core import read_core_settings, run_core
from penstock.cli._needs import need_torch
from penstock.cli._output import emit_json, emit_table, note
from penstock.cli._request import AsJson, Force
from penstock.run.process.machine import this_machine

Host = Annotated[
    bool, typer.Option("--host", help="CPU time of the runtime itself, compared with PyTorch.")
]
Emulate = Annotated[
    bool,
    typer.Option(
        "--emulate", help="Every schedule with ops that only wait, compared with the simulation."
    ),
]
Real = Annotated[
    bool, typer.Option("--real", help="Training steps of a model, compared with PyTorch.")
]
CellsFlag = Annotated[
    bool,
    typer.Option(
        "--cells",
        help="Training steps with several ranks on each device, compared with PyTorch's tensor "
        "parallelism.",
    ),
]
PairsFlag = Annotated[
    bool,
    typer.Option(
        "--pairs",
        help="Steps with tensor-parallel ranks: how long they wait for each other, with and "
        "without braided pairs.",
    ),
]
LoansFlag = Annotated[
    bool,
    typer.Option(
        "--loans",
        help="Steps with and without lent attention: how equal the work of the devices is, "
        "compared with the prediction.",
    ),
]
PlansFlag = Annotated[
    bool,
    typer.Option(
        "--plans",
        help="Plans that change while transfers are late and a stage is slow, compared with one "
        "that stays.",
    ),
]
UnequalFlag = Annotated[
    bool,
    typer.Option(
        "--unequal",
        help="Batches of documents of very unequal lengths, with ops that only wait: packed into "
        "sequences of one length, and cut into slices.",
    ),
]
PoliciesFlag = Annotated[
    bool,
    typer.Option(
        "--policies",
        help="The same documents under every data policy: predicted and measured ratio, and how "
        "long plans take.",
    ),
]
ProfileFlag = Annotated[bool, typer.Option("--profile", help="Where the time of one stage goes.")]
RanksFlag = Annotated[
    int | None,
    typer.Option("--ranks", min=1, max=64, help="Processes of all parts but --host and --profile."),
]
TokensFlag = Annotated[
    list[int] | None,
    typer.Option(
        "--tokens", min=1, help="Lengths for --real, --cells, --pairs, --loans and --profile."
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        min=0,
        help="Steps that --host, --real, --cells, --pairs and --loans measure after a first one; "
        "0 measures the first.",
    ),
]
PartFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--part",
        help="attention, steps, shared (ranks that share the GPU), breakdown (where the time of a "
        "step goes), offload or offload-long (steps with the host's memory); the first three by "
        "default.",
    ),
]
ModelFlag = Annotated[
    list[str] | None, typer.Option("--model", help="Only the steps of this model.")
]
GpuTokens = Annotated[
    list[int] | None, typer.Option("--tokens", min=1, help="Only the steps of this length.")
]
SlicesFlag = Annotated[
    list[int] | None,
    typer.Option("--slices", "-k", min=1, help="Only the steps in so many slices."),
]
GpuSteps = Annotated[
    int | None, typer.Option("--steps", min=1, help="Steps that are timed for each case.")
]


def register(app: typer.Typer) -> None:
    benches = typer.Typer()
    benches.callback()(bench)
    benches.command("core")(bench_core)
    benches.command("run")(bench_run)
    benches.command("gpu")(bench_gpu)
    app.add_typer(benches, name="bench")


def bench() -> None:
    """Measure how fast Penstock itself is."""


def bench_core(as_json: AsJson = False) -> None:
    """Measure simulate, check and lower, and PyTorch on the same schedule. Best of 5 runs."""
    results = run_core(read_core_settings(), note)
    if as_json:
        emit_json(results)
    else:
        emit_table(("what", "size", "ops", "result", "wanted"), list(_rows(results)))


def bench_run(
    host: Host = False,
    emulate: Emulate = False,
    real: Real = False,
    cells: CellsFlag = False,
    pairs: PairsFlag = False,
    loans: LoansFlag = False,
    plans: PlansFlag = False,
    unequal: UnequalFlag = False,
    policies: PoliciesFlag = False,
    profile: ProfileFlag = False,
    ranks: RanksFlag = None,
    tokens: TokensFlag = None,
    steps: Steps = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Measure the runtime: its own cost, waiting ops against the simulation, whole steps.

    By default: --host, --emulate, and, where every rank has a core, --real, --cells and --pairs.
    Results are printed on stderr as they come.
    """
    need_torch()
    from penstock.bench.choice import adjust_settings, measure

    settings = adjust_settings(ranks, tokens, steps)
    flags = {"host": host, "emulate": emulate, "real": real, "cells": cells, "pairs": pairs}
    flags |= {"loans": loans, "plans": plans, "unequal": unequal, "policies": policies}
    flags["profile"] = profile
    parts = [part for part, chosen in flags.items() if chosen]
    results = measure(settings, parts, note, None if force else this_machine())
    if as_json:
        emit_json(results)
    else:
        _print_run(results)


def bench_gpu(
    part: PartFlag = None,
    model: ModelFlag = None,
    tokens: GpuTokens = None,
    slices: SlicesFlag = None,
    steps: GpuSteps = None,
    as_json: AsJson = False,
) -> None:
    """Measure models on one GPU: attention, steps against a compiled model, memory as predicted.

    Results are printed on stderr as they come.
    """
    need_torch()
    from penstock.bench.gpu import GpuChoice, measure_gpu
    from penstock.bench.gpu_tables import gpu_tables

    choice = GpuChoice(part or (), model or (), tokens or (), slices or (), steps)
    results = measure_gpu(choice, note)
    if as_json:
        emit_json(results)
        return
    for head, rows in gpu_tables(results):
        emit_table(head, rows)


def _print_run(results: dict[str, Any]) -> None:
    from penstock.bench.tables import run_tables

    for head, rows in run_tables(results):
        emit_table(head, rows)


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

"""Which parts of `penstock bench run` are run, with which sizes."""

from collections.abc import Callable, Sequence
from typing import Any

from penstock.bench.cells import measure_cells
from penstock.bench.limits import refuse_bench
from penstock.bench.loans import measure_loans
from penstock.bench.pairs import measure_pairs
from penstock.bench.plans import measure_plans
from penstock.bench.policies import measure_policies
from penstock.bench.profile import measure_profile
from penstock.bench.run import (
    BenchSettings,
    Result,
    Say,
    cores,
    machine,
    measure_emulated,
    measure_host,
    read_bench_settings,
)
from penstock.bench.steps import measure_real
from penstock.bench.unequal import measure_unequal
from penstock.run.process.machine import Machine

PARTS: dict[str, Callable[[BenchSettings, Say], Result]] = {
    "host": measure_host,
    "emulate": measure_emulated,
    "real": measure_real,
    "cells": measure_cells,
    "pairs": measure_pairs,
    "loans": measure_loans,
    "plans": measure_plans,
    "unequal": measure_unequal,
    "policies": measure_policies,
    "profile": measure_profile,
}


def adjust_settings(
    processes: int | None, tokens: Sequence[int] | None, steps: int | None
) -> BenchSettings:
    """The settings with what the user gave in their place."""
    settings: dict[str, Any] = {**read_bench_settings()}
    given = {"ranks": processes, "tokens": list(tokens) if tokens else None, "steps": steps}
    takes = {
        "host": ("steps",),
        "emulate": ("ranks",),
        "real": ("ranks", "tokens", "steps"),
        "cells": ("ranks", "tokens", "steps"),
        "pairs": ("ranks", "tokens", "steps"),
        "loans": ("ranks", "tokens", "steps"),
        "plans": ("ranks",),
        "unequal": ("ranks",),
        "policies": ("ranks",),
        "profile": ("tokens",),
    }
    for part, keys in takes.items():
        changes = {key: given[key] for key in keys if given[key] is not None}
        settings[part] = {**settings[part], **changes}
    return settings


def measure(
    settings: BenchSettings, chosen: Sequence[str], say: Say, room: Machine | None = None
) -> Result:
    """The chosen parts, or those that this machine can measure; none that it has no room for."""
    results: Result = {"machine": machine()}
    parts = chosen or suitable(settings, say)
    if room is not None:
        refuse_bench(settings, parts, room)
    for part in parts:
        say(f"bench: {part} ...")
        results[part] = PARTS[part](settings[part], say)
    return results


def suitable(settings: BenchSettings, say: Say) -> list[str]:
    """Ranks that compute side by side need a core each; waiting ones do not."""
    processes = settings["real"]["ranks"]
    if cores() >= processes:
        return ["host", "emulate", "real", "cells", "pairs"]
    say(
        f"bench: real, cells and pairs are left out: {processes} processes need as many cores, "
        f"here are {cores()}"
    )
    return ["host", "emulate"]

"""`penstock bench core`: how fast the core is, with its sizes stated.

Rates start from the columnar table, which is built outside the clock. The comparison with PyTorch
starts from nothing on both sides and runs both in one process, so that the ratio does not depend
on the machine.
"""

import tomllib
from collections.abc import Callable, Mapping
from importlib import metadata, resources
from os import cpu_count
from platform import python_version
from typing import Any

from penstock.bench._clock import best_of, peak_bytes
from penstock.bench.rival import find_rival
from penstock.check import require
from penstock.core.schedule import Schedule
from penstock.lower import lower
from penstock.schedules import build
from penstock.sim import simulate

Settings = Mapping[str, Any]
Result = dict[str, Any]


def run(settings: Settings, say: Callable[[str], None]) -> Result:
    """Measure everything; `say` is told what is going on."""
    parts: dict[str, Callable[[Settings, int], Result]] = {
        "simulate": measure_simulate,
        "simulate_general": measure_simulate,
        "check": measure_check,
        "build": measure_build,
        "memory": measure_memory,
    }
    results: Result = {"machine": _machine(), "repeats": settings["repeats"]}
    for name, measure in parts.items():
        say(f"bench: {name} of {settings[name]['schedule']} ...")
        results[name] = measure(settings[name], settings["repeats"])
    return results


def read_settings() -> Settings:
    """The sizes and schedules that are measured (core.toml)."""
    return tomllib.loads(resources.files(__package__).joinpath("core.toml").read_text("utf-8"))


def measure_simulate(settings: Settings, repeats: int) -> Result:
    """Ops per second of a simulation with memory, of a schedule that is already proven."""
    schedule = _schedule(settings)
    require(schedule)
    seconds = best_of(repeats, lambda: simulate(schedule))
    return _rate(settings, schedule, seconds)


def measure_check(settings: Settings, repeats: int) -> Result:
    """Ops per second of a proof, derived anew each time."""
    schedule = _schedule(settings)
    seconds = best_of(repeats, lambda: require(schedule), prepare=schedule.derived.clear)
    return _rate(settings, schedule, seconds)


def measure_build(settings: Settings, repeats: int) -> Result:
    """Seconds to generate, prove and lower a schedule, and PyTorch's to construct it."""
    schedule = _schedule(settings)
    seconds = best_of(repeats, lambda: lower(_schedule(settings)))
    rival = find_rival(settings["rival"], schedule)
    result = {**_size(settings, schedule), "seconds": seconds, "target": settings["target"]}
    if isinstance(rival, str):
        return {**result, "torch": None, "reason": rival, "ratio": None}
    theirs = best_of(repeats, rival.construct)
    torch = {
        "version": rival.version,
        "seconds": theirs,
        "same_order": rival.same_order(schedule),
    }
    return {**result, "torch": torch, "reason": None, "ratio": theirs / seconds}


def measure_memory(settings: Settings, repeats: int) -> Result:
    """Peak memory of the whole way at several sizes; `growth` compares the bytes per op."""
    rows = []
    for microbatches in settings["microbatches"]:
        of_size = {**settings, "microbatches": microbatches}
        ops = len(_whole_way(of_size).table)  # the first run loads code, which is not counted
        peak = peak_bytes(lambda size=of_size: _whole_way(size))
        rows.append({"ops": ops, "bytes": peak, "bytes_per_op": peak / ops})
    growth = rows[-1]["bytes_per_op"] / rows[0]["bytes_per_op"]
    return {
        "schedule": settings["schedule"],
        "sizes": rows,
        "growth": growth,
        "target": settings["target"],
    }


def _whole_way(settings: Settings) -> Schedule:
    schedule = _schedule(settings)
    lower(schedule)
    simulate(schedule)
    return schedule


def _schedule(settings: Settings) -> Schedule:
    numbers = {key: settings.get(key) for key in ("chunks", "slices")}
    return build(
        settings["schedule"],
        devices=settings["devices"],
        microbatches=settings["microbatches"],
        **numbers,
    )


def _size(settings: Settings, schedule: Schedule) -> Result:
    shape = schedule.shape
    return {
        "schedule": settings["schedule"],
        "devices": shape.devices,
        "microbatches": shape.microbatches,
        "chunks": int(shape.chunks),
        "slices": shape.slices[0],
        "ops": len(schedule.table),
    }


def _rate(settings: Settings, schedule: Schedule, seconds: float) -> Result:
    return {
        **_size(settings, schedule),
        "seconds": seconds,
        "ops_per_second": len(schedule.table) / seconds,
        "target": settings["target"],
    }


def _machine() -> Result:
    packages = ("numpy", "numba")
    versions = {package: metadata.version(package) for package in packages}
    return {"cpus": cpu_count(), "python": python_version(), **versions}

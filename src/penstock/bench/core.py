"""`penstock bench core`: how fast the core is, with its sizes stated.

Rates start from the columnar table, which is built outside the clock. The comparison with PyTorch
starts from nothing on both sides and runs both in one process, so that the ratio does not depend
on the machine.
"""

import tomllib
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from importlib import metadata, resources
from os import cpu_count
from platform import python_version
from typing import Any

from penstock.bench.clock import best_of, peak_bytes
from penstock.bench.torch_schedules import find_rival
from penstock.check import require
from penstock.core.schedule import Schedule
from penstock.cost.model import Link, UnitCost
from penstock.lower import lower
from penstock.schedules import build
from penstock.sim import simulate

CoreSettings = Mapping[str, Any]
CoreResult = dict[str, Any]


def run_core(settings: CoreSettings, say: Callable[[str], None]) -> CoreResult:
    """Measure everything; `say` is told what is going on."""
    repeats = settings["repeats"]
    say(f"bench: generating {settings['large']['schedule']} ...")
    large = generate_lanes(settings["large"])
    parts: dict[str, Callable[[CoreSettings, int], CoreResult]] = {
        "simulate": partial(measure_simulate, large),
        "simulate_general": partial(measure_simulate, large),
        "check": partial(measure_check, large),
        "build": measure_build,
        "memory": measure_memory,
    }
    results: CoreResult = {"machine": _machine(), "repeats": repeats}
    for name, measure in parts.items():
        say(f"bench: {name} ...")
        results[name] = measure(settings[name], repeats)
    return results


def read_core_settings() -> CoreSettings:
    """The sizes and schedules that are measured (core.toml)."""
    return tomllib.loads(resources.files(__package__).joinpath("core.toml").read_text("utf-8"))


def generate_lanes(settings: CoreSettings) -> Schedule:
    """The schedule of one section of the settings."""
    return build(
        settings["schedule"],
        devices=settings["devices"],
        microbatches=settings["microbatches"],
        chunks=settings.get("chunks"),
        slices=settings.get("slices"),
    )


def measure_simulate(schedule: Schedule, settings: CoreSettings, repeats: int) -> CoreResult:
    """Ops per second of a simulation with memory: a proven schedule, nothing else derived."""
    proof = require(schedule)
    links: dict[tuple[int, int], Link] = {}
    if "slow_link" in settings:
        source, target = settings["slow_link"]
        links[source, target] = Link(latency=Fraction(1))

    def forget() -> None:
        schedule.derived.clear()
        schedule.derived["report"] = proof

    seconds = best_of(repeats, lambda: simulate(schedule, UnitCost(links=links)), prepare=forget)
    return _rate(schedule, settings, seconds)


def measure_check(schedule: Schedule, settings: CoreSettings, repeats: int) -> CoreResult:
    """Ops per second of a proof, derived anew each time."""
    seconds = best_of(repeats, lambda: require(schedule), prepare=schedule.derived.clear)
    return _rate(schedule, settings, seconds)


def measure_build(settings: CoreSettings, repeats: int) -> CoreResult:
    """Seconds to generate, prove and lower a schedule, and PyTorch's to construct it."""
    schedule = generate_lanes(settings)
    seconds = best_of(repeats, lambda: lower(generate_lanes(settings)))
    result = {**_size(schedule), "seconds": seconds, "target": settings["target"]}
    rival = find_rival(settings["rival"], schedule)
    if isinstance(rival, str):
        return {**result, "torch": None, "reason": rival, "ratio": None}
    theirs = best_of(repeats, rival.construct)
    same = rival.same_order(schedule)
    torch = {"version": rival.version, "seconds": theirs, "same_order": same}
    return {**result, "torch": torch, "reason": None, "ratio": theirs / seconds}


def measure_memory(settings: CoreSettings, repeats: int) -> CoreResult:
    """Peak memory of the whole way at several sizes; `growth` compares the bytes per op."""
    rows = []
    for microbatches in settings["microbatches"]:
        whole_way = partial(_whole_way, {**settings, "microbatches": microbatches})
        ops = len(whole_way().table)  # the first run loads code, which is not counted
        peak = peak_bytes(whole_way)
        rows.append({"ops": ops, "bytes": peak, "bytes_per_op": peak / ops})
    return {
        "schedule": settings["schedule"],
        "sizes": rows,
        "growth": rows[-1]["bytes_per_op"] / rows[0]["bytes_per_op"],
        "target": settings["target"],
    }


def _whole_way(settings: CoreSettings) -> Schedule:
    schedule = generate_lanes(settings)
    lower(schedule)
    simulate(schedule)
    return schedule


def _size(schedule: Schedule) -> CoreResult:
    shape = schedule.shape
    return {
        "schedule": schedule.name,
        "devices": shape.devices,
        "microbatches": shape.microbatches,
        "chunks": int(shape.chunks),
        "slices": shape.slices[0],
        "ops": len(schedule.table),
    }


def _rate(schedule: Schedule, settings: CoreSettings, seconds: float) -> CoreResult:
    rate = len(schedule.table) / seconds
    timing = {"seconds": seconds, "ops_per_second": rate, "target": settings["target"]}
    return {**_size(schedule), **timing}


def _machine() -> CoreResult:
    versions = {package: metadata.version(package) for package in ("numpy", "numba")}
    return {"cpus": cpu_count(), "python": python_version(), **versions}

"""A profile as a file: what `penstock profile` has measured, as a machine that can be estimated on.

The file is a JSON object that says `"format": "penstock profile"` and a version; docs/concepts/
profile.md has its fields. Here those are read that replace the constants of a named cluster. The
others are for readers, and for comparing two profiles.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.cluster.cluster import Cluster, GpuMachine, NetworkCards
from penstock.cluster.gpu import PRECISIONS, Gpu, PassShares, Reached
from penstock.cluster.measured import (
    ATTENTION_PASSES,
    END_RATES,
    FACTORS,
    FIXED_PARTS,
    MOVING_KERNELS,
    PRODUCT_PASSES,
    PRODUCTS_OF,
    ROUTING_KERNELS,
    MeasuredKernels,
    RatePoint,
    RateSurface,
)
from penstock.errors import FormatError
from penstock.files.json_object import read_object

FORMAT, VERSION = "penstock profile", 1
MAKE_AGAIN = "make it again with `penstock profile`"
LARGEST_MEASURED = 1e24
"""More than any size or rate of a machine."""
SMALLEST_MEASURED = 1e-6
MOST_GAPS = 10.0
MOST_TIMES = 1e4
"""Times that kernels are slower in a step, and seconds of what takes a part of one, at most."""
ProfilePart = Mapping[str, Any]
"""A profile, or a part of one."""


def read_profile(path: Path) -> dict[str, Any]:
    """The profile in a file, of a version that is known."""
    found = read_object(path, "give a file that `penstock profile` has written")
    if found.get("format") != FORMAT:
        raise FormatError(f"{str(path)!r} is not a profile", hint=f'"format" is "{FORMAT}" in one')
    if found.get("version") != VERSION:
        raise FormatError(
            f"{str(path)!r} has version {str(found.get('version'))[:20]} of the format",
            hint=f"this version of Penstock reads {VERSION}; {MAKE_AGAIN}",
        )
    return found


@dataclass(frozen=True)
class MeasuredMachine:
    """The machine of a profile."""

    cluster: Cluster
    kernels: MeasuredKernels

    def replaces(self, other: Cluster) -> Cluster:
        """Another cluster, whose GPUs are as fast as this one."""
        return replace(other, gpu=replace(other.gpu, measured=self.kernels))


def read_machine(path: Path) -> MeasuredMachine:
    """The machine of a profile's file."""
    record = read_profile(path)
    try:
        return machine_of(record, path.stem)
    except FormatError as error:
        raise FormatError(f"{str(path)!r}: {error.message}", hint=error.hint) from None


def machine_of(record: ProfilePart, name: str) -> MeasuredMachine:
    """The machine that a profile is of: one device, or as many as it had ranks."""
    kernels, machine = measured_kernels(record), _part(record, "machine")
    ranks = max(1, int(_number(machine, "ranks")))
    peak = machine.get("peak_flops") or kernels.products["forward"].largest
    copied = max(
        (_positive(each, "bytes_per_second") for each in _parts(record, "copies")), default=0
    )
    if not copied:
        raise FormatError("the profile has no copies", hint=MAKE_AGAIN)
    moved = max(each.largest for each in kernels.moving.values())
    gpu = Gpu(
        memory=max(1, int(_number(machine, "memory_bytes"))),
        memory_rate=moved,
        host_rate=copied,
        cores=max(1, int(_number(machine, "cores"))),
        peak={kernels.precision: float(peak)},
        reached=_reached(kernels, float(peak)),
        measured=kernels,
    )
    host = _number(machine, "host_memory_bytes") if "host_memory_bytes" in machine else 0
    links = GpuMachine(ranks, copied, 0.0, memory=max(0, int(host)))
    return MeasuredMachine(Cluster(name, gpu, links, NetworkCards(1, copied, 0.0), ranks), kernels)


def measured_kernels(record: ProfilePart) -> MeasuredKernels:
    """The rates of a profile."""
    case, memory = _part(record, "case"), _part(record, "memory")
    precision = case.get("precision")
    if precision not in PRECISIONS:
        raise FormatError(f"case.precision is {str(precision)[:20]!r}", hint=MAKE_AGAIN)
    factors, rates = _part(record, "in_step"), _part(record, "rates")
    fixed, whole = _part(record, "fixed_seconds"), _part(record, "whole_over_slices")
    return MeasuredKernels(
        products={name: _products(record, name) for name in PRODUCT_PASSES},
        attention={name: _attention(record, name) for name in ATTENTION_PASSES},
        windowed=_windowed(record),
        grouped=_grouped(record),
        moving=_moving_kernels(record),
        in_step={name: min(MOST_TIMES, _positive(factors, name)) for name in FACTORS},
        fixed={name: _seconds(fixed, name) for name in FIXED_PARTS},
        of_whole={name: min(MOST_TIMES, _positive(whole, name)) for name in FIXED_PARTS},
        rates={name: _positive(rates, name) for name in END_RATES},
        between=_seconds(record, "between_ops_seconds"),
        precision=precision,
        fused=bool(case.get("fused")),
        on_host=_part(record, "machine").get("device") == "cpu",
        context=int(_number(memory, "context_bytes")),
        gaps=min(MOST_GAPS, max(0.0, _number(memory, "gaps"))),
        activations=_activations(record),
        sums=_collectives(record),
    )


def _products(record: ProfilePart, passed: str) -> RateSurface:
    return RateSurface([*_product_points(record, passed, ())])


def _grouped(record: ProfilePart) -> dict[str, RateSurface]:
    """Of kernels for several matrices, which only models with experts have."""
    found = {name: [*_product_points(record, name, (_GROUPS,))] for name in PRODUCT_PASSES}
    return {name: RateSurface(points) for name, points in found.items() if points}


def _product_points(
    record: ProfilePart, passed: str, grouped: tuple[str, ...]
) -> Iterator[RatePoint]:
    sides, tokens = ("mn", "k") if passed == "weights" else ("nk", "m")
    for each in _parts(record, "products"):
        if each.get("pass") == passed and (_GROUPS in each) == bool(grouped):
            group = tuple(_positive(each, name) for name in (*sides, *grouped))
            yield RatePoint(group, (_positive(each, tokens),), _positive(each, "flops_per_second"))


_GROUPS = "groups"
"""What a product says of how many matrices its kernel has, where there are several."""


def _moving_kernels(record: ProfilePart) -> dict[tuple[str, str], RateSurface]:
    names = {(each.get("name"), each.get("pass")) for each in _parts(record, "kernels")}
    routing = [each for each in ROUTING_KERNELS if each in names]
    return {each: _moving(record, *each) for each in (*MOVING_KERNELS, *routing)}


def _attention(record: ProfilePart, passed: str) -> RateSurface:
    return RateSurface([*_attention_points(record, passed, _HEADS)])


def _windowed(record: ProfilePart) -> dict[str, RateSurface]:
    """Of layers with a window, which only some models have."""
    names = (*_HEADS, _WINDOW)
    found = {name: [*_attention_points(record, name, names)] for name in ATTENTION_PASSES}
    return {name: RateSurface(points) for name, points in found.items() if points}


def _attention_points(
    record: ProfilePart, passed: str, names: tuple[str, ...]
) -> Iterator[RatePoint]:
    """Those with a window or those without, as the names say that they are known by."""
    for each in _parts(record, "attention"):
        if each.get("pass") == passed and (_WINDOW in each) == (_WINDOW in names):
            tokens = _positive(each, "tokens")
            yield RatePoint(
                tuple(_positive(each, name) for name in names),
                (tokens, _positive(each, "keys") / tokens),
                _positive(each, "flops_per_second"),
            )


_HEADS, _WINDOW = ("heads", "head_size"), "window"


def _moving(record: ProfilePart, name: str, passed: str) -> RateSurface:
    return RateSurface(
        [
            RatePoint((), (_positive(each, "bytes"),), _positive(each, "bytes_per_second"))
            for each in _parts(record, "kernels")
            if (each.get("name"), each.get("pass")) == (name, passed)
        ]
    )


def _activations(record: ProfilePart) -> dict[str, float]:
    """Only a profile of a host has them."""
    found = _part(record, "activations") if "activations" in record else {}
    return {name: _positive(found, name) for name in PRODUCTS_OF if found}


def _collectives(record: ProfilePart) -> dict[tuple[str, int], RateSurface]:
    found: dict[tuple[str, int], list[RatePoint]] = {}
    for each in _parts(record, "collectives"):
        key = str(each.get("name")), int(_positive(each, "ranks"))
        point = RatePoint((), (_positive(each, "sent_bytes"),), _positive(each, "bytes_per_second"))
        found.setdefault(key, []).append(point)
    return {key: RateSurface(points) for key, points in found.items()}


def _reached(kernels: MeasuredKernels, peak: float) -> Reached:
    """Shares that hide communication: those of the largest kernels."""
    products = min(1.0, kernels.products["forward"].largest / peak)
    attended = PassShares(
        *(min(1.0, kernels.attention[name].largest / peak) for name in ATTENTION_PASSES)
    )
    return Reached(products, 1.0, attended, attended, attended)


def _part(record: ProfilePart, name: str) -> ProfilePart:
    found = record.get(name)
    if not isinstance(found, dict):
        raise FormatError(f"the profile has no object {name!r}", hint=MAKE_AGAIN)
    return found


def _parts(record: ProfilePart, name: str) -> Sequence[ProfilePart]:
    found = record.get(name)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise FormatError(f"the profile has no list {name!r}", hint=MAKE_AGAIN)
    return found


def _number(record: ProfilePart, name: str) -> float:
    found = record.get(name)
    if (
        not isinstance(found, int | float)
        or isinstance(found, bool)
        or not abs(found) < LARGEST_MEASURED
    ):
        raise FormatError(f"{name} is {str(found)[:20]!r}, not a number", hint=MAKE_AGAIN)
    return float(found)


def _positive(record: ProfilePart, name: str) -> float:
    found = _number(record, name)
    if not found > SMALLEST_MEASURED:
        raise FormatError(f"{name} is {found:g}", hint=f"it is above 0; {MAKE_AGAIN}")
    return found


def _seconds(record: ProfilePart, name: str) -> float:
    return min(MOST_TIMES, max(0.0, _number(record, name)))

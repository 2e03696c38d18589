"""Schedules that so many devices may run for so many microbatches, as columns for bounds.

For each of them a few devices decide: the one with the first stage, the one with the last, the one
of the others whose layers take longest, and the last one. Of each it is known how many layers of
each sort it has, how many are in front of it, and how many microbatches it holds at least when it
holds most.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.arch.layer_split import even_split
from penstock.errors import PenstockError
from penstock.estimate.layer_sorts import Floats
from penstock.estimate.request import BALANCED, EVEN
from penstock.planner.balanced import balanced_split
from penstock.planner.device_shares import DeviceShare, device_shares, stage_homes
from penstock.planner.model_loads import ModelLoads
from penstock.planner.problem import PlanProblem
from penstock.planner.records import RecordWork, all_work
from penstock.schedules import Case

CHUNKS = (2, 3, 4, 5, 6, 8, 10)
"""Stages of a device that are tried, where a record lets one choose."""
SLICES = (2, 4, 8, 16)
FEWEST_OF_SLICE = 512
"""Tokens of a slice below which sequences are not cut any more."""
DEVICES_LOOKED_AT = 4
"""Devices of a schedule."""
MOST_TRIED_OPS = 1 << 14
"""Ops of a schedule above which it is not tried: it would be simulated for seconds."""


FACTS = ("split", "braided", "lends", "shards")
"""What is asked of a record's work."""


class ScheduleEntry(NamedTuple):
    """A schedule with its sizes."""

    work: RecordWork
    chunks: int | None
    slices: int | None
    stages: int
    """Of a device."""
    ops: int
    """Forwards and backwards of all devices."""
    layers: tuple[int, ...] = ()
    """Of each stage; empty is even."""


@dataclass(frozen=True)
class Entries:
    """Schedules of one number of devices and microbatches. Arrays have a row for each of them, and
    a column for each device that is looked at."""

    entries: tuple[ScheduleEntry, ...]
    layers: Floats
    """Of the device, by sort."""
    before: Floats
    """Layers in front of it, by sort."""
    fewest: Floats
    """Of those of its stages that may be the smallest, by sort; some stand there again."""
    first: Floats
    """1 where it has the first stage."""
    last: Floats
    place: Floats
    """Devices in front of it."""
    live: Floats
    """Microbatches that it holds at least, when it holds most."""
    live_mean: Floats
    """The same, on average over all devices."""

    def of_layers(self, each: Floats) -> Floats:
        """What the layers of the device have, with what a layer of each sort has."""
        return np.asarray((self.layers * each).sum(axis=-1))

    def of_before(self, each: Floats) -> Floats:
        """The same of the layers in front of it."""
        return np.asarray((self.before * each).sum(axis=-1))

    def of_fewest(self, each: Floats) -> Floats:
        """The same of its smallest stage."""
        return np.asarray((self.fewest * each[..., None, :]).sum(axis=-1).min(axis=-1))

    def of_smallest(self, each: Floats) -> Floats:
        """The same of the smallest stage of any device that is looked at."""
        return np.asarray(self.of_fewest(each).min(axis=1, keepdims=True))

    @cached_property
    def uneven(self) -> NDArray[np.bool_]:
        """Whether stages have other layers than an even split gives them."""
        return np.array([bool(entry.layers) for entry in self.entries], np.bool_)

    def column(self, name: str) -> NDArray[np.bool_]:
        """A fact of each schedule's work."""
        return self._facts[name]

    @cached_property
    def _facts(self) -> dict[str, NDArray[np.bool_]]:
        works = [entry.work for entry in self.entries]
        return {name: np.array([getattr(work, name) for work in works], np.bool_) for name in FACTS}

    @cached_property
    def record(self) -> NDArray[np.int64]:
        """The number of each one's record."""
        numbers = {work.spec.name: at for at, work in enumerate(all_work())}
        return np.array([numbers[entry.work.spec.name] for entry in self.entries], np.int64)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """A number that those have in common that differ in their layers alone."""
        return (self.record * MOST_TRIED_OPS + self.stages) * MOST_TRIED_OPS + self.slices

    @cached_property
    def stages(self) -> NDArray[np.int64]:
        return np.array([entry.stages for entry in self.entries], np.int64)

    @cached_property
    def ops(self) -> NDArray[np.int64]:
        return np.array([entry.ops for entry in self.entries], np.int64)

    @cached_property
    def slices(self) -> NDArray[np.int64]:
        return np.array([entry.slices or 1 for entry in self.entries], np.int64)


def slices_of(problem: PlanProblem, sequence: int) -> tuple[int, ...]:
    """Numbers of slices that leave each of some ranks enough tokens."""
    cut = [each for each in SLICES if problem.tokens // (each * sequence) >= FEWEST_OF_SLICE]
    return _fixed(problem, "slices", cut)


def entries_of(
    problem: PlanProblem, devices: int, microbatches: int, cut: tuple[int, ...]
) -> Entries:
    """All that the records have for these sizes; sequences may be cut into so many slices."""
    found: list[ScheduleEntry] = []
    rows: list[list[DeviceShare]] = []
    for work in all_work():
        if problem.fixed.get("schedule", work.spec.name) != work.spec.name:
            continue
        if work.lends and problem.model.subsampling is not None:
            continue  # attention that is lent has all tokens
        for case, even in _choices(problem, work, (devices, microbatches), cut):
            for layers in _splits(problem, work, case):
                found.append(even._replace(layers=layers))
                rows.append(_devices(problem, case, found[-1]))
    return Entries(tuple(found), *_columns(rows, len(problem.sorts.shown_by)))


def _columns(rows: list[list[DeviceShare]], sorts: int) -> list[Floats]:
    """The columns of all entries; where devices have different numbers of stages that may be the
    smallest, the first of a device stands for those that lack."""
    most = max((len(each.fewest) for row in rows for each in row), default=1)
    padded = [
        [each.fewest + each.fewest[:1] * (most - len(each.fewest)) for each in row] for row in rows
    ]
    size = (len(rows), DEVICES_LOOKED_AT)
    layers = [[each.layers for each in row] for row in rows]
    before = [[each.before for each in row] for row in rows]
    others = np.array([[each.others for each in row] for row in rows], np.float64)
    return [
        np.array(layers, np.float64).reshape(*size, sorts),
        np.array(before, np.float64).reshape(*size, sorts),
        np.array(padded, np.float64).reshape(*size, most, sorts),
        *np.moveaxis(others.reshape(*size, 5), 2, 0),
    ]


def _choices(
    problem: PlanProblem, work: RecordWork, sizes: tuple[int, int], cut: tuple[int, ...]
) -> Iterator[tuple[Case, ScheduleEntry]]:
    spec, layers = work.spec, problem.model.layers
    devices, microbatches = sizes
    several = _fixed(problem, "chunks", CHUNKS) if spec.chunks is None else (None,)
    options = dict(problem.fixed.get("options", ()))
    if not spec.takes(problem.fixed.get("chunks"), problem.fixed.get("slices")):
        return
    for chunks in several:
        for slices in cut if spec.sliced else (None,):
            stages = devices * (spec.chunks or chunks or 1)
            ops = 2 * stages * (slices or 1) * microbatches
            if stages > layers or ops > MOST_TRIED_OPS:
                continue
            with suppress(PenstockError):
                case = spec.case(devices, microbatches, chunks, slices, options)
                if devices > 1 or _plain(work, case):
                    yield case, ScheduleEntry(work, chunks, slices, case.v, ops)


def _splits(problem: PlanProblem, work: RecordWork, case: Case) -> list[tuple[int, ...]]:
    """Layers of stages that are tried: even, and balanced where that is faster; or what was given.
    Where devices share the vocabulary, or help each other, and layers are alike, even is
    balanced."""
    given, stages = problem.fixed.get("layers"), case.p * case.v
    if isinstance(given, tuple):
        return [given] if len(given) == stages else []
    helped = work.shards or work.lends
    if given == EVEN or case.p == 1 or (helped and problem.sorts.alike):
        return [()]
    loads = ModelLoads(problem.loads.layers) if helped else problem.loads
    balanced = balanced_split(loads, (case.p, case.v), looped=work.looped)
    return [balanced] if given == BALANCED else [*dict.fromkeys(((), balanced))]


def _plain(work: RecordWork, case: Case) -> bool:
    """Whether it is a sensible order for one device, which has no bubble to fill."""
    return case.v == 1 and not (work.split or work.braided or work.lends or work.shards)


def _fixed(
    problem: PlanProblem, name: str, otherwise: list[int] | tuple[int, ...]
) -> tuple[int, ...]:
    return (problem.fixed[name],) if name in problem.fixed else tuple(otherwise)


def _devices(problem: PlanProblem, case: Case, entry: ScheduleEntry) -> list[DeviceShare]:
    """The rows of an entry: what each device that is looked at has."""
    held = _held(entry.work, case)
    counts = entry.layers or even_split(problem.model.layers, case.p * case.v)
    homes = stage_homes(case.p, case.v, entry.work.looped)
    shares = device_shares(counts, homes, problem.sorts.of_layer, problem.loads.layers)
    mean = sum(held) / len(held)
    return [share._replace(others=(*share.others, held[device], mean)) for device, share in shares]


def _held(work: RecordWork, case: Case) -> tuple[float, ...]:
    """Microbatches of each device, as the record claims exactly, or none where it does not."""
    unstashed = replace(case, stash=Fraction(0))
    for claim in work.spec.claims:
        if claim.quantity == "peak" and not claim.bound and claim.when(unstashed):
            held = claim.value(unstashed)
            if isinstance(held, tuple):
                return tuple(map(float, held))
    return (0.0,) * case.p

"""What registered schedules do, as far as a bound needs it, whatever they are called.

A record is asked for a small request, which shows the kinds of its ops and where its stages are.
How many microbatches a device holds at most is what its record claims, where a claim is exact.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from penstock.core.ops import SHARD_KINDS
from penstock.core.schedule import Schedule
from penstock.errors import PenstockError
from penstock.estimate.orders_for_shards import is_made_for_shards
from penstock.schedules import Case, Spec, registry
from penstock.schedules.generators.placements import looped_placement, wave_placement

PROBED_SIZES = (4, 12, 4)
"""Devices, microbatches and slices of the request that shows what a record does."""
MOVING = frozenset("NO")
"""Kinds of ops of records that compute again, or move, what they choose themselves."""


@dataclass(frozen=True)
class RecordWork:
    """What a record's schedules have in common."""

    spec: Spec
    kinds: frozenset[str]
    looped: bool
    """Whether the next stage is always on the next device; else stages go in waves."""
    braided: bool
    """Whether ops run as strands of a pair."""
    lends: bool
    """Whether devices help each other with attention."""

    @property
    def split(self) -> bool:
        """Whether weight gradients are ops of their own."""
        return "W" in self.kinds

    @property
    def shards(self) -> bool:
        """Whether all devices have a part of the vocabulary."""
        return bool(self.kinds & SHARD_KINDS)

    def __reduce__(self) -> tuple[Callable[[str], "RecordWork"], tuple[str]]:
        """Another process has the same records, whose formulas cannot be sent."""
        return work_of, (self.spec.name,)


def work_of(name: str) -> RecordWork:
    """What the schedules of a record do, by its name."""
    return next(work for work in all_work() if work.spec.name == name)


@lru_cache(maxsize=1)
def all_work() -> tuple[RecordWork, ...]:
    """Records that a plan may have. Left out are those whose order or copies are made for times,
    which would be other times than those of the plan, and those with their own cut of layers or
    sequences. Orders with passes over the vocabulary stay: made for equal times, as an estimate
    and a run take them, they still have room for these passes."""
    found = map(_work, registry().values())
    return tuple(work for work in found if work is not None)


def _work(spec: Spec) -> RecordWork | None:
    if spec.priced and not is_made_for_shards(spec.name):
        return None
    devices, microbatches, slices = PROBED_SIZES
    with suppress(PenstockError):
        case = spec.case(devices, microbatches, None, slices if spec.sliced else None)
        schedule = spec.build(case)
        placement = _placement(schedule)
        if placement and not schedule.table.kinds & MOVING and not _own_cut(schedule, case):
            lends = bool(schedule.loans or schedule.gangs)
            looped = placement == "looped"
            return RecordWork(spec, schedule.table.kinds, looped, bool(schedule.pairs), lends)
    return None


def _own_cut(schedule: Schedule, case: Case) -> bool:
    shape = schedule.shape
    return bool(shape.weightless or shape.layers) or {*shape.slices} != {case.k}


def _placement(schedule: Schedule) -> str:
    """The name of the placement; empty where it is none of those that bounds know."""
    shape, table = schedule.shape, schedule.table
    if schedule.gangs or shape.stages % shape.devices:
        return ""
    rows = table.of_kinds("F")
    found = dict(zip(table.stage[rows].tolist(), table.device[rows].tolist()))
    devices = tuple(found[stage] for stage in range(shape.stages))
    known = {"looped": looped_placement(shape), "wave": wave_placement(shape)}
    return next((name for name, each in known.items() if each == devices), "")

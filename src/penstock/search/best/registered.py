"""Registered schedules as starting points and as rivals of a search, whatever they are called.

A search must not lose to an order that somebody has already written down. Every record is asked for
the request with each number of stages per device and small values of its options; what it refuses
is passed over, and so is what does other work than forwards and backwards of all layers on equal
slices: vocabulary passes, copies to the host, sequences of unequal length.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.core.table import CODE
from penstock.errors import PenstockError
from penstock.schedules import Case, Option, Spec, registry
from penstock.schedules.generators.placements import Placement
from penstock.search.joint.joint import Known
from penstock.search.joint.pipeline import FUSED_LETTERS, SPLIT_LETTERS, Order, turns

WORK = frozenset("FBIW")
AGAIN = frozenset("NR")
"""Kinds of recomputation: orders with them are compared, but nothing is searched from there."""
PROBED = (2, 4)
"""Devices and microbatches of a request that shows what work a schedule does."""
VALUES = (1, 2, 3, 4, 8)
"""Numbers that are tried for an option."""
LAYERS, LIMIT = "layers", "limit"
"""Names of options. A record with the first searches over layers itself."""

Options = dict[str, Any]


class Rival(NamedTuple):
    """A registered schedule, and how a user would ask for it."""

    label: str
    schedule: Schedule


def searches_layers(spec: Spec) -> bool:
    """Whether a record cuts the layers itself."""
    return any(option.name == LAYERS for option in spec.options)


def rivals(
    spec: Spec, case: Case, chunks: int, values: tuple[int, ...] = VALUES
) -> Iterator[Rival]:
    """One record at the size and prices of a request, under each choice of stages and options."""
    if (case.k > 1 and not spec.sliced) or _does_other_work(spec, case):
        return
    seen: set[Schedule] = set()
    slices = case.k if spec.sliced else None
    prices = {name: getattr(case, name) for name in ("F", "I", "W", "act", "stash", "hop")}
    for v in range(1, chunks + 1) if spec.chunks is None else (None,):
        for options in _choices(spec, case, values):
            with suppress(PenstockError):
                asked = spec.case(case.p, case.m, v, slices, options, prices)
                schedule = spec.build(asked)
                if comparable(schedule) and schedule not in seen:
                    seen.add(schedule)
                    yield Rival(_label(spec, v, case.k, options), schedule)


def _does_other_work(spec: Spec, case: Case) -> bool:
    """What a small request shows already, where it is accepted: a large one may take seconds."""
    with suppress(PenstockError):
        p, m = min(case.p, PROBED[0]), min(case.m, PROBED[1])
        return not comparable(spec.build(spec.case(p, m, None, case.k if spec.sliced else None)))
    return False


def _choices(spec: Spec, case: Case, values: tuple[int, ...]) -> Iterator[Options]:
    """The usual options, then one after the other set to small numbers; the limit is passed on.

    Searched orders choose for themselves.
    """
    limit = case.options.get(LIMIT)
    limited = any(option.name == LIMIT for option in spec.options) and limit is not None
    given = {LIMIT: limit} if limited else {}
    yield given
    for option in spec.options:
        if not spec.priced and _counts(option):
            yield from ({**given, option.name: value} for value in values)


def _counts(option: Option[Any]) -> bool:
    return option.least is not None and option.parse is int and option.name != LIMIT


def _label(spec: Spec, chunks: int | None, slices: int, options: Options) -> str:
    stages = "" if chunks is None else f" -v {chunks}"
    cut = "" if slices == 1 else f" -k {slices}"
    asked = "".join(f" -o {key}={value}" for key, value in options.items())
    return spec.name + stages + cut + asked


def comparable(schedule: Schedule) -> bool:
    """Whether a schedule does the work of all layers on equal slices, and nothing beside it."""
    shape, table = schedule.shape, schedule.table
    equal = Shape(shape.devices, shape.stages, shape.slices[:1] * shape.microbatches)
    beside = schedule.loans or schedule.gangs or schedule.after or schedule.shares
    return (
        shape == equal
        and table.kinds <= WORK | AGAIN
        and set(table.lane_stream) == {"compute"}
        and len(table.lane_device) == shape.devices
        and not beside
    )


def recomputes(schedule: Schedule) -> bool:
    return bool(schedule.table.kinds & AGAIN)


def placement_of(schedule: Schedule) -> Placement:
    """The device of each stage."""
    table, placement = schedule.table, np.zeros(schedule.shape.stages, np.int64)
    placement[table.stage] = table.device
    return tuple(placement.tolist())


def known_of(schedule: Schedule) -> Known:
    """The order of a schedule for a search; pairs are taken apart."""
    letters = SPLIT_LETTERS if "I" in schedule.table.kinds else FUSED_LETTERS
    order = _columns(schedule, split=letters == SPLIT_LETTERS)
    return Known(placement_of(schedule), letters, order)


def _columns(schedule: Schedule, *, split: bool) -> Order:
    """Rows of the lanes; where backwards are split, each full one becomes its two halves."""
    table = schedule.table
    code = np.zeros(256, np.int64)
    code[[CODE["B"], CODE["I"]]], code[CODE["W"]] = 1, 2
    whole = table.kind == CODE["B"] if split else np.zeros(len(table), np.bool_)
    times = 1 + whole.astype(np.int64)
    second = np.cumsum(times)[whole] - 1
    kind = np.repeat(code[table.kind], times)
    kind[second] = 2
    start = np.concatenate([[0], np.cumsum(times)])[table.lane_start]
    columns = (table.stage, table.mb, table.slice)
    stage, mb, slice = (np.repeat(column, times).astype(np.int64) for column in columns)
    return Order(kind, stage, turns(kind, mb, slice, schedule.shape.slices[0]), start)


@lru_cache(maxsize=64)
def known_orders(devices: int, microbatches: int, chunks: int) -> tuple[Known, ...]:
    """Orders of all records that do not search, with at most so many stages per device."""
    case = Case(devices, microbatches)
    found: dict[Schedule, Known] = {}
    for spec in registry().values():
        if not spec.priced:
            for _, schedule in rivals(spec, case, chunks, values=()):
                if not recomputes(schedule):
                    found.setdefault(schedule, known_of(schedule))
    return tuple(k for k in found.values() if len(k.placement) <= chunks * devices)

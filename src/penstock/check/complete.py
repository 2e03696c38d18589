"""Is every op there, exactly once, and where it may stand?

These rules look at ops one by one, without order. They come first: an order among ops that are
missing or doubled means nothing.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.check.finding import Finding
from penstock.core.kernel import kernel
from penstock.core.ops import SHARD_KINDS, STAGE_KINDS, STREAMS, Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.core.table import CODE, LETTERS

SPELLED_OUT = 8
"""Findings of one rule that are spelled out; more of the same help nobody."""

_STREAM_OF: dict[str, tuple[str, ...]] = {
    "O": ("copy",),
    "L": ("copy",),
    "G": ("collective",),
    "Z": ("collective",),
    "U": ("compute", "copy", "collective"),
    "V": ("compute", "copy"),
    "A": ("compute", "copy"),
}


_ALLOWED = np.array(
    [[name in _STREAM_OF.get(kind, ("compute",)) for kind in LETTERS] for name in STREAMS]
)
"""Whether a stream may have ops of a kind."""


def known(schedule: Schedule) -> Iterator[Finding]:
    """Ops that the shape does not have."""
    table, shape = schedule.table, schedule.shape
    limits = [_numbered(shape, kind) for kind in LETTERS]
    strange = table.stage >= np.array(limits, np.int32)[table.kind]
    strange |= (schedule.unit < 0) & ~_WHOLE[table.kind]
    for row in np.flatnonzero(strange)[:SPELLED_OUT]:
        op = table.op(row)
        yield Finding(
            "known",
            (op,),
            int(table.device[row]),
            f"{op} on device {table.device[row]} is not part of the shape: {_limits(schedule, op)}",
            "correct its number, or widen the shape (`slices: K x M` is K slices for each of M "
            "microbatches)",
        )


_WHOLE = np.array([kind in STAGE_KINDS for kind in LETTERS])
"""Whether a kind serves a whole stage, and so has no unit."""


def _numbered(shape: Shape, kind: str) -> int:
    """How many stages, shards or both ops of a kind are numbered by."""
    if kind in SHARD_KINDS:
        return shape.devices
    return shape.homes if kind in STAGE_KINDS else shape.stages


def _limits(schedule: Schedule, op: Op) -> str:
    shape = schedule.shape
    if op.kind in SHARD_KINDS and op.stage >= shape.devices:
        return f"there are {shape.devices} shards"
    if op.stage >= shape.stages:
        return f"there are {shape.stages} stages"
    if op.mb >= shape.microbatches:
        return f"there are {shape.microbatches} microbatches"
    return f"microbatch {op.mb} has {shape.slices[op.mb]} slice(s)"


def stream(schedule: Schedule) -> Iterator[Finding]:
    """Ops in a lane of the wrong stream, and shards on the wrong device."""
    table = schedule.table
    of_lane = np.array([STREAMS.index(name) for name in table.lane_stream])
    wrong = ~_ALLOWED[of_lane[table.lane], table.kind]
    if table.kinds & SHARD_KINDS:
        wrong |= table.of_kinds(SHARD_KINDS) & (table.stage != table.device)
    for row in np.flatnonzero(wrong)[:SPELLED_OUT]:
        op, device = table.op(row), int(table.device[row])
        place = f"{device} {table.lane_stream[table.lane[row]]}"
        streams = " or ".join(_STREAM_OF.get(op.kind, ("compute",)))
        where = f"device {op.stage}" if op.kind in SHARD_KINDS else "its device"
        yield Finding(
            "stream",
            (op,),
            device,
            f"{op} is in lane {place}, but belongs to the {streams} lane of {where}",
            f"move {op} to the {streams} lane of {where}",
        )


def complete(schedule: Schedule) -> Iterator[Finding]:
    """Work that is missing, or done more than once."""
    counts = _counts(schedule)
    for wanted, kinds, numbers, why in _demands(schedule, counts):
        if schedule.table.kinds.isdisjoint(kinds) and not wanted.any():
            continue
        wrong = np.flatnonzero(sum(counts[kind] for kind in kinds) != wanted)
        wrong = wrong[wrong < numbers * schedule.shape.units]
        for index in wrong[:SPELLED_OUT]:
            number, unit = divmod(int(index), schedule.shape.units)
            target = int(np.broadcast_to(wanted, counts[kinds[0]].shape)[index])
            yield _miscounted(schedule, kinds, (number, unit, target), why)
        if len(wrong) > SPELLED_OUT:
            yield _more("complete", len(wrong) - SPELLED_OUT, why)


def _more(rule: str, count: int, why: str) -> Finding:
    """A finding that stands for those that are not spelled out."""
    return Finding(rule, (), 0, f"and {count:,} more of the same: {why}", "correct the first ones")


OpCounts = dict[str, NDArray[np.int64]]


def _counts(schedule: Schedule) -> OpCounts:
    """How often each kind occurs for each (stage or shard, unit); extra gang members count once."""
    table, shape = schedule.table, schedule.shape
    room = max(shape.stages, shape.devices) * shape.units
    found = np.zeros((len(LETTERS), room), np.int32)
    _count(len(table), table.kind, table.stage, schedule.unit, shape.units, found)
    for op in set(schedule.gangs).intersection(table.ops() if schedule.gangs else ()):
        code, index = CODE[op.kind], op.stage * shape.units + shape.unit_of(op.mb, op.slice)
        found[code, index] = min(found[code, index], 1)
    return {letter: found[code] for letter, code in CODE.items()}


@kernel
def _count(kind: Any, stage: Any, unit: Any, units: Any, found: Any) -> None:
    """Add one for every row that belongs to a unit."""
    for row in range(len(kind)):
        if unit[row] >= 0:
            found[kind[row], stage[row] * units + unit[row]] += 1


def _demands(schedule: Schedule, counts: OpCounts) -> Iterator[tuple[Any, str, int, str]]:
    """(how many, of which kinds together, for how many stages or shards, why)."""
    shape = schedule.shape
    stages = shape.stages
    live = np.zeros(len(counts["F"]), np.int64)
    live[: stages * shape.units] = 1
    heavy = live.copy()
    for stage in shape.weightless:
        heavy[stage * shape.units : (stage + 1) * shape.units] = 0
    yield live, "FN", stages, "a unit goes forward once per stage, as F or as N"
    yield live, "BI", stages, "a unit goes backward once per stage, as B or as I"
    yield counts["I"] * heavy, "W", stages, "every I of a stage with weights has one W"
    yield counts["N"], "R", stages, "every N has one R, and an F has none"
    moved = np.minimum(counts["O"] + counts["L"], 1)
    yield moved, "O", stages, "what is loaded was offloaded, once"
    yield moved, "L", stages, "what is offloaded is loaded again, once"
    shards = np.zeros(len(live), np.int64)
    shards[: shape.devices * shape.units] = 1
    for kinds, on in (("ED", shape.embed == "E"), ("ST", shape.loss in "ST")):
        for kind in kinds:
            why = f"{kind} occurs once per shard and unit" if on else f"the shape has no {kind}"
            yield shards * on, kind, shape.devices, why


def _miscounted(schedule: Schedule, kinds: str, at: tuple[int, int, int], why: str) -> Finding:
    """The finding for a unit whose kinds do not occur as often as wanted."""
    number, unit, wanted = at
    shape, table = schedule.shape, schedule.table
    here = np.flatnonzero((schedule.unit == unit) & (table.stage == number)).tolist()
    rows = [row for row in here if LETTERS[table.kind[row]] in kinds]
    ops = tuple(dict.fromkeys(table.op(row) for row in rows)) or (
        Op(_missing_kind(kinds, schedule, here), number, *shape.mb_and_slice(unit)),
    )
    names = " and ".join(str(op) for op in ops)
    if len(rows) > wanted:
        lanes = ", ".join(str(device) for device in sorted({int(table.device[r]) for r in rows}))
        message = f"{names} occurs {len(rows)} times (device {lanes}), but {why}"
        hint = f"keep {wanted or 'none'} of them"
    else:
        message = f"{names} is missing: {why}"
        hint = f"add {names} to the lane of stage {number}"
    device = int(table.device[rows[0]]) if len(rows) else number % shape.devices
    return Finding("complete", ops, device, message, hint)


_OTHER_HALF = {"W": "I", "R": "N"}
"""What must be missing where this is there: half of a split backward, or of a recompute."""


def _missing_kind(kinds: str, schedule: Schedule, here: list[int]) -> str:
    """The kind to name when none is there: the rest of what is, or what is used elsewhere."""
    there = {LETTERS[schedule.table.kind[row]] for row in here}
    rest = [_OTHER_HALF[kind] for kind in sorted(there & _OTHER_HALF.keys())]
    # An N that is missing has left its R behind: where there is none it was an F.
    present = [kind for kind in kinds if kind in schedule.table.kinds and kind != "N"]
    return next((kind for kind in (*rest, *present) if kind in kinds), kinds[0])

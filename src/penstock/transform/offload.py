"""Move activations to the host while nobody needs them, on a copy lane beside the compute lane.

Between a forward and its backward lies a long time in which the activation is only held. An offload
`O` moves it out, a load `L` brings it back, and both run while the device computes.

    gpipe, p = 2, m = 3             offload stage 0, one op of time for each copy
    device 0  F0 F1 F2 B0 B1 B2     F0 F1 F2 B0 B1 B2
                              copy  O0 O1 L0 O2 L1 L2
    device 1  F0 F1 F2 B0 B1 B2     F0 F1 F2 B0 B1 B2

Where the copies stand is said with windows: times, simulated or counted in ops, in which each op is
to run. The windows are not kept, a schedule knows no time; what remains of them is order. A load
stands `after` the last op that ends before it, so that it does not take its memory too early; an op
that takes memory stands `after` the last offload that has ended when it starts. So the level that
the windows show is proven for every timing. Source: arXiv:2503.01328, sections 3 and 4.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from heapq import merge
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from penstock.core.buffers import BUFFERS
from penstock.core.holds import held_too
from penstock.core.lifetimes import size_factors
from penstock.core.ops import Op
from penstock.core.schedule import After, Schedule
from penstock.core.table import CODE, LETTERS
from penstock.errors import ShapeError
from penstock.transform._blocks import unique
from penstock.transform.copy_turns import CopyLanes, CopyTurns, copy_turns

Channels = Sequence[Collection[int]]
"""Devices whose copies share one channel to the host; a device in none has its own."""


class Window(NamedTuple):
    """When an op is to run; any numbers that can be compared."""

    start: Any
    end: Any


Windows = Mapping[Op, Window]
TAKING = frozenset(
    kind
    for kind in LETTERS
    for size in {buffer.size for buffer in BUFFERS.values() if buffer.size}
    if size_factors(size).start[CODE[kind]] > 0
)
"""Kinds that take memory at their start."""


LEAD = 2
"""Ops whose time a copy has, unless it is said otherwise."""


def offload_stages(
    schedule: Schedule,
    stages: Collection[int],
    *,
    lead: int = LEAD,
    share: Fraction = Fraction(1),
) -> Schedule:
    """Offload a share of what some stages keep; each copy has the time of `lead` ops to run.

    An activation that comes back sooner than it could go out and in again stays where it is.
    """
    for stage in stages:
        if not 0 <= stage < schedule.shape.stages:
            raise ShapeError(
                f"stage {stage} cannot be offloaded: there are {schedule.shape.stages} stages",
                hint=f"give stages from 0 to {schedule.shape.stages - 1}",
            )
    if schedule.gangs:
        raise ShapeError(
            f"{schedule.name} has gangs, as {schedule.gangs[0]}: copies are placed in the lane of "
            "an op, and this one has several",
            hint="offload a schedule whose ops are in one lane each",
        )
    if lead < 1:
        raise ShapeError(f"a copy cannot run in the time of {lead} ops", hint="give 1 or more")
    turns = copy_turns(schedule, lead).of_stages(schedule, stages)
    if not len(turns.forward):
        return schedule.renamed(f"{schedule.name}+offload")
    _refuse_more(schedule)
    lanes = CopyLanes.of(schedule, turns, lead)
    holds = lanes.holds(schedule, TAKING)
    return schedule.with_table(
        schedule.table.followed_by(lanes.table),
        name=f"{schedule.name}+offload",
        after=held_too(schedule.after, holds),
        shares=(*schedule.shares, *_shares(schedule, turns, share)),
    )


def _shares(schedule: Schedule, turns: CopyTurns, share: Fraction) -> Iterator[tuple[Op, Fraction]]:
    """What copies move, where that is not all."""
    for op in schedule.table.ops_at(turns.forward) if share != 1 else ():
        yield op._replace(kind="O"), share
        yield op._replace(kind="L"), share


def _refuse_more(schedule: Schedule) -> None:
    if "copy" in schedule.table.lane_stream:
        raise ShapeError(
            f"{schedule.name} has copies already", hint="add all copies to a schedule at once"
        )


def add_copies(
    schedule: Schedule,
    windows: Windows,
    *,
    shares: Mapping[Op, Fraction] | None = None,
    taking: Collection[str] = TAKING,
) -> Schedule:
    """The schedule with the offloads and loads among `windows`, ordered as their windows are.

    `taking` are the kinds that need room: with a stash above an activation, also input gradients.
    """
    _refuse_more(schedule)
    copies = _copy_lanes(schedule, windows)
    compute = {device: schedule.lane(device) for device in copies}
    holds = [
        *schedule.after,
        *(note for at, ops in copies.items() for note in _loads(compute[at], ops, windows)),
        *(
            note
            for at, ops in copies.items()
            for note in _takers([op for op in compute[at] if op.kind in taking], ops, windows)
        ),
    ]
    added = [(at, "copy", ops) for at, ops in copies.items()]
    partial = {op: share for op, share in (shares or {}).items() if share != 1}
    return replace(
        schedule.renamed(f"{schedule.name}+offload"),
        table=schedule.table.appended(added) if added else schedule.table,
        after=unique(holds),
        shares=(*schedule.shares, *partial.items()),
    )


def _copy_lanes(schedule: Schedule, windows: Windows) -> dict[int, list[Op]]:
    """The copies of each device, in the order of their windows."""
    rows, device = schedule.table.rows_by_op, schedule.table.device
    lanes: dict[int, list[Op]] = {}
    for op in windows:
        if op.kind in "OL":
            written = rows.get(("F", *op[1:]))  # type: ignore[call-overload]
            if written is None:
                raise ShapeError(
                    f"{op} moves the activation of {op._replace(kind='F')}, which is in no lane",
                    hint="offload forwards that keep their activation",
                )
            lanes.setdefault(int(device[written[0]]), []).append(op)
    return {at: _in_time(lanes[at], windows) for at in sorted(lanes)}


def _in_time(copies: list[Op], windows: Windows) -> list[Op]:
    """At one time memory is given back before it is taken."""
    return sorted(copies, key=lambda op: (windows[op], "OL".index(op.kind), op[2:], op.stage))


def _loads(compute: list[Op], copies: list[Op], windows: Windows) -> Iterator[After]:
    """Hold each load back until what ended before its window has ended."""
    begun = [windows[op].start for op in compute]
    held = 0
    for copy in copies:
        start = windows[copy].start
        ended = bisect_left(begun, start)
        while ended and windows[compute[ended - 1]].end > start:
            ended -= 1
        if copy.kind == "L" and ended > held:
            yield After(copy, compute[ended - 1])
        held = max(held, ended) if copy.kind == "L" else held


def _takers(takers: list[Op], copies: list[Op], windows: Windows) -> Iterator[After]:
    """Hold ops that take memory back until the offloads that ended before them have ended."""
    ended, last, held = 0, None, None
    for op in takers:
        while ended < len(copies) and windows[copies[ended]].end <= windows[op].start:
            last = copies[ended] if copies[ended].kind == "O" else last
            ended += 1
        if last is not None and last != held:
            yield After(op, last)
            held = last


def take_turns(
    schedule: Schedule, windows: Windows, channels: Channels, *, kinds: Collection[str] = "OL"
) -> Schedule:
    """Let copies of some kinds that share a channel run one at a time, in the order of their
    windows.

    The windows are those of a run, so that what comes first has nothing to wait for later. A
    channel that carries both directions at once is one channel for each kind.
    """
    copies = {
        at: [op for op in ops if op.kind in kinds]
        for at, stream, ops in schedule.table.lanes()
        if stream == "copy"
    }
    turns = [note for devices in channels for note in _turns(copies, devices, windows)]
    return replace(schedule, after=unique([*schedule.after, *turns]), derived={})


def _turns(
    copies: Mapping[int, list[Op]], devices: Collection[int], windows: Windows
) -> Iterator[After]:
    """Copies of one channel that follow a copy of another device."""
    lanes = [[(windows[op].start, at, op) for op in copies.get(at, ())] for at in devices]
    queue = merge(*lanes, key=itemgetter(0))  # each lane keeps its own order
    for (_, device, earlier), (_, other, later) in pairwise(queue):
        if device != other:
            yield After(later, earlier)

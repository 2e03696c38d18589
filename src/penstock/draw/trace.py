"""A timeline in the trace format of Chrome and Perfetto, to be opened at ui.perfetto.dev.

One process per device, one track per stream and one per link and payload, arrows for transfers, a
counter for memory. One unit of time is drawn as one millisecond. A viewer shows overlapping events
of one track as if one had called the other, so whatever overlaps is spread over several tracks.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.core.ops import KINDS
from penstock.core.table import Ints, Ticks
from penstock.draw.axis import axis_of
from penstock.draw.tracks import strands, tracks
from penstock.draw.words import name_words
from penstock.sim.timeline import Timeline

Event = dict[str, Any]
Threads = dict[tuple[int, str], int]
"""Number of each track, by process and name; from 1, because 0 is the idle task to viewers."""

NANOSECONDS = 1_000_000
"""Length of one unit of time in the trace."""


def render(timelines: Sequence[Timeline]) -> str:
    """The trace of all timelines; devices of later ones come after those of earlier ones."""
    axis_of(timelines)  # refuses an empty list
    events: list[Event] = []
    threads: Threads = {}
    first = 0
    for timeline in timelines:
        name = f"{name_words(timeline)} device" if len(timelines) > 1 else "device"
        events += _events(timeline, first, name, threads)
        first += timeline.schedule.shape.devices
    events += _thread_names(threads)
    encode = json.JSONEncoder(separators=(",", ":")).encode
    lines = ",\n".join(map(encode, events))
    return f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n]}}\n'


def _events(timeline: Timeline, first: int, name: str, threads: Threads) -> Iterator[Event]:
    """All events of one timeline; `first` is the process of its device 0."""
    for device in range(timeline.schedule.shape.devices):
        pid = first + device
        yield _about(pid, 0, "process_name", name=f"{name} {device}")
        yield _about(pid, 0, "process_sort_index", sort_index=pid)
    thread = np.zeros(len(timeline.start), np.int64)
    for track in tracks(timeline):
        strand = f", strand {track.strand + 1}" if track.strand else ""
        thread[track.rows] = _thread(threads, first + track.device, f"{track.stream}{strand}")
    yield from _ops(timeline, first, thread)
    yield from _sends(timeline, first, threads)
    yield from _flows(timeline, first, thread)
    yield from _memory(timeline, first)


def _thread(threads: Threads, pid: int, name: str) -> int:
    return threads.setdefault((pid, name), len(threads) + 1)


def _thread_names(threads: Threads) -> Iterator[Event]:
    for (pid, name), tid in threads.items():
        yield _about(pid, tid, "thread_name", name=name)
        yield _about(pid, tid, "thread_sort_index", sort_index=tid)


def _about(pid: int, tid: int, kind: str, **args: Any) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": args}


def _nanoseconds(timeline: Timeline, ticks: Ticks) -> list[int]:
    scale = float(timeline.tick * NANOSECONDS)
    found: list[int] = np.rint((ticks - timeline.start.min()) * scale).astype(np.int64).tolist()
    return found


def _lasting(start: int, end: int) -> Event:
    """Start and length in microseconds, with whole nanoseconds behind the point."""
    return {"ph": "X", "ts": start / 1000, "dur": (end - start) / 1000}


def _ops(timeline: Timeline, first: int, thread: Ticks) -> Iterator[Event]:
    table = timeline.schedule.table
    columns = (_nanoseconds(timeline, timeline.start), _nanoseconds(timeline, timeline.end))
    places = zip(table.ops(), (table.device + first).tolist(), thread.tolist(), *columns)
    for op, pid, tid, start, end in places:
        args = {"kind": KINDS[op.kind], "stage": op.stage, "microbatch": op.mb, "slice": op.slice}
        where = {"pid": pid, "tid": tid, "name": f"PP:{op}", "cat": op.kind}
        yield {**_lasting(start, end), **where, "args": args}


def _sends(timeline: Timeline, first: int, threads: Threads) -> Iterator[Event]:
    """Transfers on the device that sends, one track per receiver and payload."""
    moves, table = timeline.transfers, timeline.schedule.table
    start, end = _nanoseconds(timeline, moves.start), _nanoseconds(timeline, moves.end)
    channels: dict[tuple[int, int, str], list[int]] = {}
    ends = zip(table.device[moves.writer].tolist(), table.device[moves.reader].tolist())
    for move, (source, target) in enumerate(ends):
        if source != target:  # a device's own part of a collective stays where it is
            channels.setdefault((source, target, moves.payload[move]), []).append(move)
    for (source, target, payload), members in sorted(channels.items()):
        strand = strands(moves.start[members], moves.end[members]).tolist()
        for move, number in zip(members, strand):
            more = f", strand {number + 1}" if number else ""
            tid = _thread(threads, first + source, f"send {payload} to device {target}{more}")
            name = f"{payload} of {table.op(moves.writer[move])}"
            where = {"pid": first + source, "tid": tid, "name": name, "cat": "transfer"}
            yield {**_lasting(start[move], end[move]), **where}


def _flows(timeline: Timeline, first: int, thread: Ticks) -> Iterator[Event]:
    """An arrow from the op that wrote to the op that reads, for every transfer."""
    moves = timeline.transfers
    start = np.array(_nanoseconds(timeline, timeline.start))
    end = np.array(_nanoseconds(timeline, timeline.end))
    # An arrow belongs to the event around its time: leave one nanosecond before the writer ends.
    leaves = np.maximum(end[moves.writer] - 1, start[moves.writer])
    for phase, rows, times in (
        ("s", moves.writer, leaves),
        ("f", moves.reader, start[moves.reader]),
    ):
        places = zip(*_place(timeline, rows, first, thread), times.tolist(), moves.payload)
        for number, (pid, tid, time, payload) in enumerate(places):
            where = {"pid": pid, "tid": tid, "ts": time / 1000, "name": payload}
            yield {"ph": phase, "bp": "e", "cat": "transfer", "id": f"{first}.{number}", **where}


def _place(
    timeline: Timeline, rows: Ints, first: int, thread: Ticks
) -> tuple[list[int], list[int]]:
    """Process and track of some rows."""
    device = timeline.schedule.table.device
    return (device[rows] + first).tolist(), thread[rows].tolist()


def _memory(timeline: Timeline, first: int) -> Iterator[Event]:
    for device, curve in enumerate(timeline.curves):
        levels = (curve.level * float(timeline.grain)).tolist()
        for time, level in zip(_nanoseconds(timeline, curve.time), levels):
            where = {"pid": first + device, "tid": 0, "ts": time / 1000, "name": "memory"}
            yield {"ph": "C", **where, "args": {"memory": level}}

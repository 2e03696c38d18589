"""A timeline as columns of small numbers, for the page that draws it in a browser.

A step of a hundred thousand ops has half a million dependencies. Written as objects they would fill
a hundred megabytes; as columns of differences, most entries are one or two digits.
"""

from typing import Any

import numpy as np

from penstock.core.graph import reads_of
from penstock.core.ops import KINDS
from penstock.core.rules import NAMES
from penstock.core.table import LETTERS, Ints, Ticks
from penstock.draw.style import LOOKS, SHADES, colour, ink, shades
from penstock.draw.tracks import tracks
from penstock.draw.words import name_words, result_words, size_words
from penstock.sim.timeline import Curve, Timeline


def kind_looks() -> dict[str, Any]:
    """The colour table, for the page."""
    found: dict[str, Any] = {}
    for kind, look in LOOKS.items():
        steps = [colour(kind, shade) for shade in range(SHADES)]
        inks = [ink(step) for step in steps]
        found[kind] = {
            "words": KINDS[kind],
            "pattern": look.pattern,
            "colours": steps,
            "inks": inks,
        }
    return found


def columns(timeline: Timeline) -> dict[str, Any]:
    """Everything the page needs to know about one timeline."""
    schedule, first = timeline.schedule, timeline.start.min()
    table, shape = schedule.table, schedule.shape
    return {
        "name": name_words(timeline),
        "size": size_words(shape),
        "facts": result_words(timeline),
        "staged": shape.stages > shape.devices,
        "tick": float(timeline.tick),
        "grain": float(timeline.grain),
        "kind": "".join(LETTERS[code] for code in table.kind.tolist()),
        "stage": table.stage.tolist(),
        "mb": table.mb.tolist(),
        "slice": table.slice.tolist(),
        "shade": "".join(map(str, shades(schedule).tolist())),
        "start": _steps(timeline.start - first),
        "duration": (timeline.end - timeline.start).tolist(),
        **_lanes(timeline),
        "edges": _edges(timeline),
        "peak": [float(peak) for peak in timeline.peak],
        "curves": [_curve(curve, int(first)) for curve in timeline.curves],
    }


def _steps(values: Ticks) -> list[int]:
    """First value, then differences."""
    found: list[int] = np.diff(values, prepend=0).tolist()
    return found


def _curve(curve: Curve, first: int) -> dict[str, list[int]]:
    return {"time": _steps(curve.time - first), "level": _steps(curve.level)}


def _lanes(timeline: Timeline) -> dict[str, Any]:
    """The lanes as ranges of rows, and for each row its strand and whether it runs alone."""
    table = timeline.schedule.table
    strand = np.zeros(len(table), np.int32)
    alone = np.ones(len(table), np.int32)
    counts: dict[tuple[int, str], int] = {}
    for track in tracks(timeline):
        strand[track.rows] = track.strand
        alone[track.rows] = track.alone
        counts[track.device, track.stream] = track.strands
    lanes = [
        {
            "device": int(device),
            "stream": stream,
            "first": int(table.lane_start[lane]),
            "end": int(table.lane_start[lane + 1]),
            "strands": counts[int(device), stream],
        }
        for lane, (device, stream) in enumerate(zip(table.lane_device, table.lane_stream))
    ]
    texts = ("".join(map(str, column.tolist())) for column in (strand, alone))
    return {"lanes": lanes, **dict(zip(("strand", "alone"), texts))}


def _edges(timeline: Timeline) -> dict[str, list[int]]:
    """What every row reads: how far back its writer stands, which buffer, how long it travelled."""
    graph = reads_of(timeline.schedule)
    known = graph.writer >= 0
    reader, writer, buffer = graph.reader[known], graph.writer[known], graph.buffer[known]
    return {
        "count": np.bincount(reader, minlength=len(timeline.start)).tolist(),
        "back": (reader - writer).tolist(),
        "buffer": buffer.tolist(),
        "delay": _delays(timeline, reader, writer, buffer).tolist(),
    }


def _delays(timeline: Timeline, reader: Ints, writer: Ints, buffer: Ints) -> Ticks:
    """Ticks from the end of the writer until its transfer, if there is one, has arrived."""
    transfers, device = timeline.transfers, timeline.schedule.table.device
    payload = np.array([NAMES.index(name) for name in transfers.payload], np.int64)

    def key(writer: Ints, reader: Ints, buffer: Any) -> Ticks:
        at = writer.astype(np.int64) * timeline.schedule.shape.devices + device[reader]
        return np.asarray(at * (len(NAMES) + 1) + buffer, np.int64)

    known = key(transfers.writer, transfers.reader, payload)
    order = np.argsort(known, kind="stable")
    wanted = key(writer, reader, buffer)
    delays = np.zeros(len(wanted), np.int64)
    if len(known):
        place = order[np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)]
        travel = transfers.end[place] - timeline.end[transfers.writer[place]]
        delays = np.where(known[place] == wanted, travel, 0)
    return delays

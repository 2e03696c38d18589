"""A timeline as text: one line per lane, each op as wide as it is long.

Colour only helps; the letter that starts an op, the character that fills it and the dots between
say the same without it.

    0  F0-F1-......B0====B1====
    1  ...F0-B0====F1-B1====...
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import groupby
from sys import maxsize
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.table import LETTERS, Ints
from penstock.draw.axis import Axis, axis_of, marks, stride_of
from penstock.draw.style import LOOKS, SHADES, channels, colour, ink, shades
from penstock.draw.tracks import Track, tracks
from penstock.draw.words import count_of, labels, name_words, number, result_words, size_words
from penstock.sim.timeline import Timeline

IDLE = "\N{MIDDLE DOT}"
NARROWEST = 20
"""Columns that the time axis gets, however narrow the terminal is."""

Paint = Callable[[str, str, int], str]
"""Text of an op, its kind and its shade, to what is printed."""


class Frame(NamedTuple):
    """How the lines of one picture are divided."""

    axis: Axis
    gutter: int
    """Columns in front of the time axis."""
    columns: int
    """Columns of the time axis."""
    scale: Fraction
    """Columns per quantum."""


class TrackSpans(NamedTuple):
    """The ops of a track that take time, with their places in columns."""

    rows: Ints
    start: NDArray[np.float64]
    end: NDArray[np.float64]


def render(timelines: Sequence[Timeline], *, width: int, color: bool) -> str:
    """Draw timelines under each other on one time axis, `width` columns wide."""
    return _blocks(timelines, width, _coloured if color else _plain, maxsize)


def render_excerpt(timelines: Sequence[Timeline], *, width: int, lines: int) -> str:
    """The same without colour, with the first lines of each timeline, and how much that hides."""
    return _blocks(timelines, width, _plain, lines)


def _blocks(timelines: Sequence[Timeline], width: int, paint: Paint, most: int) -> str:
    frame = _frame(timelines, width)
    blocks = ("\n".join(_block(timeline, frame, paint, most)) for timeline in timelines)
    return "\n\n".join(blocks) + "\n"


def _frame(timelines: Sequence[Timeline], width: int) -> Frame:
    axis = axis_of(timelines)
    names = [_name(track) for timeline in timelines for track in tracks(timeline)]
    gutter = max(map(len, [*names, "time"])) + 2
    peaks = [number(peak) for timeline in timelines for peak in timeline.peak]
    room = max(width - gutter - max(map(len, [*peaks, "peak"])) - 2, NARROWEST)
    stride = stride_of(timelines, axis)
    # Whole columns per stride keep equal ops equally wide; a long step must share what there is.
    per_stride = room * stride // axis.length or Fraction(room * stride, axis.length)
    scale = Fraction(per_stride) / stride
    return Frame(axis, gutter, int(axis.length * scale), scale)


def _block(timeline: Timeline, frame: Frame, paint: Paint, most: int) -> Iterator[str]:
    """Headline, axis and lanes of one timeline, not more lines of these than `most`."""
    yield "   ".join(
        (name_words(timeline), size_words(timeline.schedule.shape), *result_words(timeline))
    )
    yield _ruler(frame)
    shade, found = shades(timeline.schedule), list(tracks(timeline))
    for track in found[:most]:
        line = _line(timeline, track, frame, shade, paint)
        name, peak = _name(track), number(timeline.peak[track.device])
        if track.strand:  # where only the first strand runs, the device is not idle
            line = line.replace(IDLE, " ").rstrip()
        whole = track.stream == "compute" and not track.strand
        yield f"{name:>{frame.gutter - 2}}  {line}  {peak if whole else ''}".rstrip()
    if hidden := found[most:]:
        ops = sum(len(track.rows) for track in hidden)
        yield f"{count_of(len(hidden), 'more line')} with {ops:,} ops not shown"


def _name(track: Track) -> str:
    if track.strand:
        return ""
    return str(track.device) if track.stream == "compute" else f"{track.device} {track.stream}"


def _ruler(frame: Frame) -> str:
    line = [" "] * frame.columns
    for mark in marks(frame.axis.time, frame.columns // 10):
        at = int(mark / frame.axis.quantum * frame.scale)
        text = number(mark)
        if at + len(text) <= frame.columns:
            line[at : at + len(text)] = text
    return f"{'time':>{frame.gutter - 2}}  {''.join(line)}  peak"


def _line(timeline: Timeline, track: Track, frame: Frame, shade: Ints, paint: Paint) -> str:
    """The track in columns: ops with their labels, or shares where ops are too narrow for that."""
    scale = np.float64(frame.scale)
    start = frame.axis.quanta(timeline, timeline.start[track.rows]) * scale
    end = frame.axis.quanta(timeline, timeline.end[track.rows]) * scale
    long = end > start
    spans = TrackSpans(track.rows[long], start[long], end[long])
    if not long.any():
        return IDLE * frame.columns
    if (spans.end - spans.start < 1 - 1e-9).any():
        return _blurred(timeline, spans, frame.columns, paint)
    return "".join(_pieces(timeline, _owners(spans, frame.columns), shade, paint))


def _pieces(timeline: Timeline, owners: list[int], shade: Ints, paint: Paint) -> Iterator[str]:
    table, shape = timeline.schedule.table, timeline.schedule.shape
    for row, columns in groupby(owners):
        room = sum(1 for _ in columns)
        if row < 0:
            yield IDLE * room
            continue
        op = table.op(row)
        label = next(text for text in labels(op, shape) if len(text) <= room)
        yield paint(label.ljust(room, LOOKS[op.kind].fill), op.kind, int(shade[row]))


def _owners(spans: TrackSpans, columns: int) -> list[int]:
    """For every column, the row that runs in its middle, or -1."""
    middle = np.arange(columns) + 0.5
    place = np.searchsorted(spans.start, middle, side="right") - 1
    runs = (place >= 0) & (middle < spans.end[place])
    owners: list[int] = np.where(runs, spans.rows[place], -1).tolist()
    return owners


def _blurred(timeline: Timeline, spans: TrackSpans, columns: int, paint: Paint) -> str:
    """Letters in the proportion of the time each kind takes, where single ops cannot be seen.

    Taking the op in the middle of a column would beat against the rhythm of the schedule and show
    long phases that are not there. Instead each column goes to the kind that is owed most.
    """
    kinds = timeline.schedule.table.kind[spans.rows]
    owed = np.zeros(len(LETTERS) + 1)
    pieces: list[str] = []
    for shares in _shares(spans, kinds, columns):
        owed = np.clip(owed + shares, -1, 1)
        kind = int(np.where(shares > 1e-9, owed, -np.inf).argmax())
        owed[kind] -= 1
        idle = kind == len(LETTERS)
        pieces.append(IDLE if idle else paint(LETTERS[kind], LETTERS[kind], SHADES // 2))
    return "".join(pieces)


def _shares(spans: TrackSpans, kinds: NDArray[np.uint8], columns: int) -> NDArray[np.float64]:
    """Share of every column that each kind takes; the last entry is idle time."""
    shares = np.zeros((columns, len(LETTERS) + 1))
    edges = np.arange(columns + 1.0)
    for kind in np.unique(kinds):
        start, end = spans.start[kinds == kind], spans.end[kinds == kind]
        busy = np.concatenate(([0.0], np.cumsum(end - start)))
        # Time taken up to each edge: all spans begun before it, less what is still to run.
        begun = np.searchsorted(start, edges)
        ahead = np.maximum(end[np.maximum(begun - 1, 0)] - edges, 0) * (begun > 0)
        shares[:, kind] = np.diff(busy[begun] - ahead)
    shares[:, -1] = 1 - shares.sum(axis=1)
    return shares


def _plain(text: str, kind: str, shade: int) -> str:
    return text


def _coloured(text: str, kind: str, shade: int) -> str:
    background = colour(kind, shade)
    below = ";".join(map(str, channels(background)))
    above = ";".join(map(str, channels(ink(background))))
    return f"\x1b[48;2;{below};38;2;{above}m{text}\x1b[0m"

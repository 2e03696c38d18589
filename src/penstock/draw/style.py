"""How each kind of op looks, in one table that every picture reads.

A colour alone must not carry meaning: about one reader in twenty cannot tell some of them apart,
and a printed page has none. So a kind also has a pattern (SVG, HTML), a fill character (terminal)
and its letter. Slices run from light to dark, so that the order inside a microbatch can be seen.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from penstock.core.ops import SHARD_KINDS, STAGE_KINDS
from penstock.core.schedule import Schedule
from penstock.core.table import CODE, Ints


class Look(NamedTuple):
    """One kind of op: the colours of its first and last slice, its pattern, its character."""

    light: str
    dark: str
    pattern: str
    fill: str


LOOKS: dict[str, Look] = {
    "F": Look("#c3dcf3", "#3b82c4", "plain", "-"),
    "N": Look("#cfd6f7", "#5a6fd0", "lines", "-"),
    "R": Look("#c9ecec", "#2f9a9c", "stripes", "~"),
    "B": Look("#f7c1a2", "#d2571f", "rise", "="),
    "I": Look("#fbe3a4", "#dd9c12", "rise", "="),
    "W": Look("#c4e6c2", "#3f9a52", "fall", ":"),
    "E": Look("#dacdf5", "#9470d4", "cross", "+"),
    "D": Look("#f7c0d4", "#c04a80", "cross", "+"),
    "S": Look("#dacdf5", "#9470d4", "grid", "+"),
    "T": Look("#f7c0d4", "#c04a80", "grid", "+"),
    "O": Look("#d6dbe0", "#7c8894", "rise", ">"),
    "L": Look("#d6dbe0", "#7c8894", "fall", "<"),
    "G": Look("#c9e6ec", "#5594a3", "dots", ">"),
    "Z": Look("#efd6c6", "#a37a55", "dots", "<"),
    "U": Look("#d9d9d9", "#808080", "plain", "#"),
    "V": Look("#c6c6c6", "#8a8a8a", "lines", "#"),
    "A": Look("#e3dcc2", "#9a8a4a", "stripes", "#"),
    "C": Look("#c6c6c6", "#8a8a8a", "dots", "#"),
}

PATTERNS = {
    "rise": "M-1 7L7 -1M-1 1L1 -1M5 7L7 5",
    "fall": "M-1 -1L7 7M5 -1L7 1M-1 5L1 7",
    "cross": "M-1 7L7 -1M-1 -1L7 7",
    "lines": "M0 3H6",
    "stripes": "M3 0V6",
    "grid": "M0 3H6M3 0V6",
    "dots": "M2 3H4",
}
"""What is drawn over a colour, in a tile of 6 by 6 pixels."""

SHADES = 8
"""Steps from light to dark; more could not be told apart."""

_ALONE = 2
"""Shade of ops that are not cut at all: light enough for dark letters."""

_SHARDS = np.isin(np.arange(256), [CODE[kind] for kind in SHARD_KINDS])
_STAGES = np.isin(np.arange(256), [CODE[kind] for kind in STAGE_KINDS])


def shades(schedule: Schedule) -> Ints:
    """Shade of every row: by the stage's place among its device's stages, then by its slice."""
    shape, table = schedule.shape, schedule.table
    counts = np.array(shape.slices, np.int32)[np.minimum(table.mb, shape.microbatches - 1)]
    counts = np.where(_STAGES[table.kind], 1, counts)
    chunks = -(-shape.stages // shape.devices)
    among = np.where(_SHARDS[table.kind], 0, table.stage // shape.devices)
    place = among * counts + np.minimum(table.slice, counts - 1)
    last = chunks * counts - 1
    return np.where(last > 0, place * (SHADES - 1) // np.maximum(last, 1), _ALONE).astype(np.int32)


@cache
def colour(kind: str, shade: int) -> str:
    """Colour of a kind at a shade, as #rrggbb.

    >>> colour("F", 0)
    '#c3dcf3'
    """
    look = LOOKS[kind]
    mixed = (
        round(a + (b - a) * shade / (SHADES - 1))
        for a, b in zip(channels(look.light), channels(look.dark))
    )
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def channels(text: str) -> tuple[int, int, int]:
    """Red, green and blue of #rrggbb, each 0 to 255."""
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


INKS = ("#101418", "#ffffff")
"""What is written on ops: dark letters, or light ones where those are easier to read."""


@cache
def ink(background: str) -> str:
    """The ink with the higher contrast on a background."""
    return max(INKS, key=lambda letters: contrast(letters, background))


def contrast(one: str, other: str) -> float:
    """Contrast of two colours as WCAG 2 defines it, from 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(text: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (channel / 255 for channel in channels(text))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

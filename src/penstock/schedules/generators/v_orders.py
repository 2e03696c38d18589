"""From V-shaped blocks to orders: repeat, squeeze, warm up, cool down, fill holes; then price.

Every step keeps the peak of the repeated block. An order that is good for equal times may be worse
than an earlier step of it at other times, so every step is priced. Times and sizes are those of one
of the two stages of a device, and equal times count as 1 slot.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.chain_clock import READS, Cells, chain_cells
from penstock.errors import ShapeError
from penstock.schedules.generators.lane import LaneDraft
from penstock.schedules.generators.streams import PlainOp
from penstock.schedules.generators.v_blocks import (
    INTERVAL,
    WEIGHT,
    PassGrid,
    PassInts,
    block_peaks,
    repeat,
)
from penstock.schedules.generators.v_kernels import cool_down, fill_holes, play_blocks, warm_up

MOST_PASS_TICKS = 2**38
"""Time or size of one pass; with the ops of the largest shape the sum stays exact."""


@dataclass(frozen=True)
class Prices:
    """Times and sizes in whole ticks."""

    times: tuple[int, int, int]
    """Of F, I and W."""
    sizes: dict[str, int]
    """Of an activation and a stash."""
    hop: int
    grain: int
    """Ticks of memory that stand for one unit."""

    @classmethod
    def of(
        cls, times: tuple[Fraction, ...], sizes: tuple[Fraction, ...], hop: Fraction
    ) -> "Prices":
        """Prices of F, I, W, and of an activation and a stash."""
        (forward, inputs, weight, latency), _ = _whole((*times, hop))
        (act, stash), grain = _whole(sizes)
        return cls((forward, inputs, weight), {"act": act, "stash": stash}, latency, grain)

    def cells(self, devices: int, microbatches: int) -> Cells:
        """What the clock reads of a V over so many devices.

        It reads no wait of a weight gradient: that it stands behind its input gradient is counted.
        """
        home, times = [*range(devices), *reversed(range(devices))], np.array(self.times)
        cells = chain_cells("FIW", home, microbatches, self.hop, times[:, None], self.sizes)
        cells[2, :, READS] = -1
        return cells


def _whole(values: tuple[Fraction, ...]) -> tuple[list[int], int]:
    """Fractions as whole numbers, and what they were multiplied by."""
    scale = lcm(*(value.denominator for value in values))
    numbers = [int(value * scale) for value in values]
    if max(numbers) > MOST_PASS_TICKS:
        raise ShapeError(
            f"the times and sizes have no common unit coarse enough to be searched with: "
            f"{max(numbers):.2e} ticks for one pass",
            hint="give times and sizes with fewer digits",
        )
    return numbers, scale


UNIT = Prices.of((Fraction(1),) * 3, (Fraction(1),) * 2, Fraction(0))
_NO_GRID = np.zeros((0, 0, 0), np.uint8)
_EQUAL = np.zeros(0, np.int64)
"""No shares: microbatches of a search are equal."""


class PlayedBlocks(NamedTuple):
    """Schedules that ran: how long their longest device works, what their fullest device holds."""

    span: PassInts
    peak: PassInts
    works: NDArray[np.bool_]
    """Whether a schedule came to its end."""


class Orders(NamedTuple):
    """Schedules of some blocks, with the peaks they keep; `number` is that of the block."""

    grid: PassGrid
    peak: PassInts
    number: PassInts

    def where(self, chosen: NDArray[np.bool_]) -> "Orders":
        return Orders(self.grid[chosen], self.peak[chosen], self.number[chosen])


def play_grid(
    grid: PassGrid, microbatches: int, prices: Prices, squeezed: PassGrid = _NO_GRID
) -> PlayedBlocks:
    """Play all schedules of a grid; `squeezed` gets them as early as they can run."""
    blocks, devices, _ = grid.shape
    passes = INTERVAL * microbatches * devices
    lane_start, lane_stage = np.zeros(devices + 1, np.int32), np.full(devices, -1, np.int32)
    kind, (stage, unit) = np.empty(passes, np.uint8), np.empty((2, passes), np.int32)
    cells = prices.cells(devices, microbatches)
    ready, end = np.empty((2, passes), np.int64)
    lane_peak, done = np.empty(devices, np.int64), np.zeros(WEIGHT + 1, np.int64)
    (span, peak), fails = np.zeros((2, blocks), np.int64), np.zeros(blocks, np.uint8)
    play_blocks(
        grid.size, grid, _codes(devices), microbatches, lane_start, lane_stage, kind, stage, unit,
        cells, _EQUAL, ready, end, lane_peak, done, squeezed, span, peak, fails,
    )  # fmt: skip
    return PlayedBlocks(span, peak, fails == 0)


def _codes(devices: int) -> PassInts:
    """By code, its kind (F, I, W) and then its stage on each device."""
    down = np.arange(devices)
    up = 2 * devices - 1 - down
    return np.vstack([[0, 0, 0, 1, 1, 2], np.stack([down, down, up, up, down, down], axis=1)])


def block_orders(starts: PassInts, first: int, microbatches: int) -> Iterator[Orders]:
    """What becomes of blocks, from the first order that works to the one with the fewest holes.

    Blocks are numbered from `first`.
    """
    devices, number = starts.shape[1], np.arange(first, first + len(starts))
    enough = max(microbatches, 2 * devices)  # so that every device gets through its warm-up
    length = INTERVAL * (enough + 2 * devices + 4) + 2 * devices
    found = _squeezed(Orders(repeat(starts, enough, length), block_peaks(starts), number), enough)
    fails = np.zeros(len(found.number), np.uint8)
    warm_up(found.grid.size, found.grid, found.peak, np.zeros(6, np.int64), fails)
    found = _squeezed(found.where(fails == 0), enough)
    if microbatches < enough:
        cut = Orders(_cut(found.grid, microbatches), found.peak, found.number)
        found = _squeezed(cut, microbatches)
    yield found
    found = _cooled(found, microbatches)
    yield found
    yield _filled(found, microbatches)


def _squeezed(given: Orders, microbatches: int) -> Orders:
    """Keep the order of every device, and run each pass as early as it can, at equal times.

    What cannot run, or exceeds the peak it has to keep, is left out.
    """
    squeezed = np.zeros_like(given.grid)
    played = play_grid(given.grid, microbatches, UNIT, squeezed)
    found = Orders(squeezed, played.peak, given.number)
    return found.where(played.works & (played.peak <= given.peak))


def _cut(grid: PassGrid, microbatches: int) -> PassGrid:
    """Only the first microbatches."""
    kept = np.zeros(grid.shape, np.bool_)
    for code in range(1, WEIGHT):
        mine = grid == code
        kept |= mine & (np.cumsum(mine, axis=-1) <= microbatches)
    inputs = (grid == 3) | (grid == 4)
    kept[grid == WEIGHT] = kept[inputs]  # both in the order of their device
    return np.where(kept, grid, np.uint8(0))


def _cooled(given: Orders, microbatches: int) -> Orders:
    grid, peak, _ = given
    length = grid.shape[-1]
    turns = length - 1 - np.argmax(grid[:, 0, ::-1] == 2, axis=-1)
    fails = np.zeros(len(grid), np.uint8)
    room = np.zeros(2 * microbatches, np.int64)
    cooled = grid.copy()
    cool_down(grid.size, cooled, peak, turns, microbatches, room, fails)
    return _squeezed(Orders(cooled, peak, given.number).where(fails == 0), microbatches)


def _filled(given: Orders, microbatches: int) -> Orders:
    filled = given.grid.copy()
    blocks, devices, length = filled.shape
    ends = length - 1 - np.argmax(filled[:, :, ::-1] > 0, axis=-1)
    at = np.full((blocks, devices, WEIGHT, microbatches), length)
    done = np.zeros((blocks, devices, WEIGHT + 1), np.int64)
    held = np.zeros((blocks, devices), np.int64)
    fill_holes(filled.size, filled, given.peak, ends, at, done, held)
    return _squeezed(Orders(filled, given.peak, given.number), microbatches)


def with_weights_last(given: Orders, microbatches: int) -> Orders:
    """Where memory for the whole batch is there: weight gradients only where nothing else runs."""
    turn = np.where(given.grid == 0, 2, given.grid == WEIGHT)
    grid = np.take_along_axis(given.grid, np.argsort(turn, axis=-1, kind="stable"), axis=-1)
    peak = np.full_like(given.peak, 2 * microbatches)
    return _filled(_squeezed(Orders(grid, peak, given.number), microbatches), microbatches)


def schedule_lanes(grid: PassGrid) -> list[list[PlainOp]]:
    """The lanes of one schedule; weight gradients run in the order of their input gradients."""
    devices = len(grid)
    lanes = [LaneDraft() for _ in range(devices)]
    for r, lane in enumerate(lanes):
        down, up = r, 2 * devices - 1 - r
        for code in grid[r][grid[r] > 0].tolist():
            if code == WEIGHT:
                lane.run_oldest()
            else:
                lane.run("FFII"[code - 1], (down, up, up, down)[code - 1])
    return [lane.items for lane in lanes]

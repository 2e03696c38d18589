"""V-ZB and adaptive V: the fastest V-shaped order for measured times and a memory limit.

A V-shaped building block fixes what a pipeline needs: its lifespans the memory, its ends the
bubble. There are only some hundred blocks for a given number of devices that do not collide. Build
the order of each, price it with the measured times, and keep the fastest one within the limit.

    v-zb: p = 2, m = 3 (F is the descending stage of a device, f the ascending one)
    device 0  F0 F1 F2 f0 i0 w0 f1 i1 w1 I0 W0 f2 i2 I1 w2 I2 W1 W2
    device 1  F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 I1 i2 I2 w1 W1 w2 W2

    v-auto: p = 3, m = 3, limit = 2
    device 0  F0 F1 F2 f0 i0 w0 f1 i1 w1 I0 W0 f2 i2 w2 I1 W1 I2 W2
    device 1  F0 F1 f0 f1 i0 w0 F2 i1 I0 w1 W0 f2 I1 i2 W1 w2 I2 W2
    device 2  F0 f0 F1 f1 i0 w0 I0 F2 W0 f2 i1 I1 w1 W1 i2 I2 w2 W2

Needs: two stages per device; for v-auto, a limit of (p + 4)//3 microbatches.
Claims: peak at most the limit, which is p microbatches for V-ZB; at equal times and m >= 2p, with k
stage activations in the limit, a bubble of 3p - 1 - 3k + max(3p, p + 1 + 2 ceil(k/2)) passes, which
is none for k = 2p. Source: arXiv:2405.15362, sections 3 and 4, appendix A, and its public code.
Where we differ: the public code prices only the last of its reordering steps and never looks back;
we price each of them, and with memory for the whole batch also an order with weight gradients
last. Memory is counted in activations and stashes of their own size.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from penstock.core.schedule import Lanes
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules._limit import LIMIT
from penstock.schedules._registry import Case, Claim, Need, schedule
from penstock.schedules.generators.v_blocks import INTERVAL, PassGrid, block_peaks, v_blocks
from penstock.schedules.generators.v_orders import (
    Orders,
    Prices,
    block_orders,
    play_grid,
    schedule_lanes,
    with_weights_last,
)

PAPER = "arXiv:2405.15362"

MOST_DEVICES = 64
"""Blocks grow with the number of devices, and so does each of them."""
CELLS = 4_000_000
"""Slots that are worked on at once, so that memory does not grow with the number of blocks."""


def _least(c: Case) -> Fraction:
    """What the block with the shortest lifespans needs."""
    return min(c.m, (c.p + 4) // 3) * c.held


def _bubble(c: Case, limit: Fraction) -> Fraction:
    """Idle time at equal times, a third of a stage's work on a microbatch for each pass."""
    alive = min(2 * c.p, int(2 * limit / c.held))
    passes = 3 * c.p - 1 - 3 * alive + max(3 * c.p, c.p + 1 + 2 * ((alive + 1) // 2))
    return passes * c.step / INTERVAL


def _equal(c: Case) -> bool:
    """The times and sizes for which the closed form is meant."""
    return c.F == c.I == c.W and c.act == c.stash > 0 and c.hop == 0 and c.m >= 2 * c.p


EQUAL = "F = I = W, act = stash, no latency, and m >= 2p"


@schedule(
    name="v-zb",
    title="zero bubble on a V, searched for measured times",
    paper=PAPER,
    chunks=2,
    priced=True,
    claims=(
        Claim(
            "span",
            "m(F + I + W)",
            lambda c: c.m * c.step,
            f"{PAPER}, section 3",
            when=_equal,
            condition=EQUAL,
        ),
        Claim(
            "peak",
            "p max(act, stash)",
            lambda c: (c.p * c.held,) * c.p,
            f"{PAPER}, section 3",
            bound=True,
        ),
    ),
    cases=(Case(4, 8), Case(4, 11), Case(4, 3), Case(2, 4), Case(1, 2)),
)
def v_zb(shape: Shape, case: Case) -> Lanes:
    """The fastest within the memory of 1F1B."""
    return _fastest(case, case.p * case.held)


@schedule(
    name="v-auto",
    title="the fastest V within a memory limit",
    paper=PAPER,
    chunks=2,
    priced=True,
    options=(LIMIT,),
    needs=(
        Need(
            lambda c: c[LIMIT] >= _least(c),
            "limit is at least min(m, (p + 4)//3) max(act, stash)",
            "raise -o limit={limit} to (p + 4)//3 microbatches, or take fewer devices than {p}",
        ),
    ),
    claims=(
        Claim(
            "span",
            "(6m + 3p - 1 - 3k + max(3p, p + 1 + 2 ceil(k/2)))(F + I + W)/6, "
            "k = min(2p, floor(2 limit/act))",
            lambda c: c.m * c.step + _bubble(c, c[LIMIT]),
            f"{PAPER}, public code",
            when=_equal,
            condition=EQUAL,
        ),
        Claim(
            "peak",
            "limit",
            lambda c: (c[LIMIT],) * c.p,
            f"{PAPER}, section 4",
            bound=True,
        ),
    ),
    cases=(
        Case(4, 8, options={"limit": 3}),
        Case(4, 8, options={"limit": Fraction(7, 2)}),
        Case(4, 8),
        Case(4, 2, options={"limit": 2}),
        Case(6, 12, options={"limit": Fraction(9, 2)}),
        Case(1, 2),
    ),
)
def v_auto(shape: Shape, case: Case, limit: Fraction) -> Lanes:
    """The fastest within the memory that the user gives."""
    return _fastest(case, limit)


def _fastest(case: Case, limit: Fraction) -> Lanes:
    """Build and price every order, and keep the fastest; the smaller one among equally fast."""
    if case.p > MOST_DEVICES:
        raise ShapeError(
            f"a search over the blocks of {case.p} devices would take too long",
            hint=f"take at most {MOST_DEVICES} devices, or a fixed block (see `penstock list`)",
        )
    prices = Prices.of(
        (case.F / 2, case.I / 2, case.W / 2), (case.act / 2, case.stash / 2), case.hop
    )
    best: tuple[int, ...] = ()
    grid: PassGrid = np.zeros((case.p, 0), np.uint8)
    for step, tried in _tried(case, limit):
        played = play_grid(tried.grid, case.m, prices)
        fits = np.flatnonzero(played.works & (played.peak <= int(limit * prices.grain)))
        for at in fits[np.lexsort((played.peak[fits], played.span[fits]))][:1]:
            standing = (int(played.span[at]), int(played.peak[at]), -step, int(tried.number[at]))
            if not best or standing < best:
                best, grid = standing, tried.grid[at]
    if not best:
        raise ShapeError(
            f"no V-shaped order of {case.p} devices fits into {limit}",
            hint=f"give a limit of {_least(case)} or more",
        )
    return schedule_lanes(grid)


def _tried(case: Case, limit: Fraction) -> Iterator[tuple[int, Orders]]:
    """Orders of all blocks that may fit, by the step of reordering that they come from."""
    starts = v_blocks(case.p)
    alive = block_peaks(starts)
    most = 2 * case.p
    if case.m >= most and (each := min(case.act, case.stash) / 2):
        most = min(most, int(limit / each))
    starts = starts[alive <= most]
    batch = max(1, CELLS // (INTERVAL * case.p * (case.m + 4 * case.p)))
    for first in range(0, len(starts), batch):
        part = starts[first : first + batch]
        for step, found in enumerate(block_orders(part, first, case.m)):
            yield step, found
        if case.m * case.held <= limit:
            yield step + 1, with_weights_last(found, case.m)

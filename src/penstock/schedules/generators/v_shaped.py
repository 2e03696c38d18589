"""V-shaped blocks: every device holds a stage on the way down and one on the way up.

The way down is long-lived on the first devices and the way up on the last, so that every device
needs the same memory. How far the passes of neighbours are apart decides how much: a block whose
forwards go down every `a` units and up every `b` units needs (a + b)/6 of the memory of 1F1B.
Weight gradients are not part of these blocks: they go where a device is free.
Source: arXiv:2405.15362, section 3, and its public code.
"""

from collections.abc import Callable

from penstock.core.shape import Shape
from penstock.schedules.generators.building_blocks import Block
from penstock.schedules.generators.placements import stages_of, v_placement
from penstock.schedules.generators.v_blocks import INTERVAL

Start = Callable[[int], int]
"""When a pass starts on a device."""


def v_shaped(p: int, down: Start, up: Start, back_up: Start, back_down: Start) -> Block:
    """The block of forwards down and up, and input gradients back up and back down."""
    ways = stages_of(v_placement(Shape.even(p, 1, chunks=2)))
    return Block(
        INTERVAL,
        tuple(
            {
                ("F", first): down(r),
                ("F", second): up(r),
                ("I", second): back_up(r),
                ("I", first): back_down(r),
            }
            for r, (first, second) in enumerate(ways)
        ),
    )


def third_block(p: int) -> Block:
    """The shortest lifespans there are: a third of the memory of 1F1B."""
    rest = 2 if p % 3 == 0 else 0  # where the two ways would meet
    return v_shaped(
        p,
        lambda r: r,
        lambda r: 2 * p - 1 - r,
        lambda r: 2 * p + rest + r,
        lambda r: 4 * p + rest - 1 - r,
    )


def half_block(p: int, barriers: int = 0) -> Block:
    """Half of the memory of 1F1B, and an interval more for every barrier in front of the turn."""
    rest = (3 if p % 2 == 0 else 0) + INTERVAL * barriers
    return v_shaped(
        p,
        lambda r: 2 * r,
        lambda r: 3 * p - 2 - r,
        lambda r: 3 * p + rest - 1 + 2 * r,
        lambda r: 6 * p + rest - 2 - r,
    )

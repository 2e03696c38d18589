"""Slices in lock-step: at every step all devices run a forward, or all run a backward.

A device that runs two units further ahead than the next one meets it at every step: while device r
is at forward unit t - r, the next is at t - r - 1. What devices do together, such as exchanging
attention work, hangs on these steps.
"""

from collections.abc import Iterator

from penstock.core.shape import Shape
from penstock.schedules.generators.placements import (
    looped_placement,
    stages_of,
    stages_per_device,
)
from penstock.schedules.generators.streams import PlainOp, alternate, looped_tables, table_ops

Step = list[PlainOp]
"""What the devices run at the same time, one op each."""


def lock_step_lanes(shape: Shape, slack: int) -> list[list[PlainOp]]:
    """Run ahead until one microbatch and the slack to the last device are alive; then alternate."""
    p, k = shape.devices, shape.slices[0]
    units = k * stages_per_device(shape)
    forwards, backwards = looped_tables(shape, slice_group(p, k))
    return [
        alternate(
            table_ops("F", forwards, stages),
            table_ops("B", backwards, stages),
            warmup=units - 1 + slack * (p - 1 - r),
        )
        for r, stages in enumerate(stages_of(looped_placement(shape)))
    ]


def slice_group(p: int, k: int) -> int:
    """Slices a stage runs before the next one: the fewest that fill p devices and divide k."""
    return next((group for group in range(p, k + 1) if k % group == 0), k)


def lock_steps(shape: Shape) -> Iterator[tuple[str, int]]:
    """All steps in their order, of forwards (F) and backwards (B), with slack for both.

    Device r is at forward unit t - r in forward step t, and at backward unit b - (p - 1 - r) in
    backward step b. The first backward step follows the forward step in which a whole microbatch
    has reached the end.
    """
    p, units = shape.devices, shape.units * stages_per_device(shape)
    ahead = units // shape.microbatches + p - 2
    for step in range(units + p - 1 + ahead):
        if step < units + p - 1:
            yield "F", step
        if step >= ahead:
            yield "B", step - ahead


def full_steps(shape: Shape) -> Iterator[Step]:
    """Steps at which all devices have work: forwards go down the devices, backwards up."""
    p = shape.devices
    forwards, backwards = looped_tables(shape, slice_group(p, shape.slices[0]))
    of_device = stages_of(looped_placement(shape))
    down = [table_ops("F", forwards, stages) for stages in of_device]
    up = [table_ops("B", backwards, stages) for stages in of_device]
    for step in range(p - 1, len(forwards)):
        yield [down[r][step - r] for r in range(p)]
        yield [up[r][step - (p - 1 - r)] for r in range(p)]

"""Placements by name: which device holds which stage.

A device may hold several stages, and where the neighbours of a stage are decides what a schedule
can do. In a loop every stage hands over to the next device. In a wave the way turns at both ends,
so that a device follows itself there and sends nothing; a V is a wave that turns once.

    stage     0 1 2 3 4 5 6 7
    looped    0 1 0 1 0 1 0 1     device of each stage, 2 devices
    wave      0 1 1 0 0 1 1 0
    V         0 1 1 0

How many stages a device has follows from the shape; generators ask for the stages of a device and
do not compute their numbers.
"""

from collections.abc import Sequence

from penstock.core.shape import Shape
from penstock.errors import ShapeError

Placement = tuple[int, ...]
"""Device of each stage."""


def stages_per_device(shape: Shape) -> int:
    """How many stages every device has, where all have as many."""
    if shape.stages % shape.devices:
        raise ShapeError(
            f"{shape.stages} stages do not divide evenly over {shape.devices} devices",
            hint=f"give a multiple of {shape.devices} stages, or a placement of your own",
        )
    return shape.stages // shape.devices


def looped_placement(shape: Shape) -> Placement:
    """The next stage is on the next device, and after the last device comes the first.

    >>> looped_placement(Shape.even(2, 1, chunks=3))
    (0, 1, 0, 1, 0, 1)
    """
    return tuple(range(shape.devices)) * stages_per_device(shape)


def wave_placement(shape: Shape) -> Placement:
    """Down the devices and up again, as often as there are stages for.

    >>> wave_placement(Shape.even(2, 1, chunks=3))
    (0, 1, 1, 0, 0, 1)
    """
    down = tuple(range(shape.devices))
    return tuple(
        device
        for lap in range(stages_per_device(shape))
        for device in (down[::-1] if lap % 2 else down)
    )


def v_placement(shape: Shape) -> Placement:
    """Down the devices and up again, once: the first and the last stage share a device.

    >>> v_placement(Shape.even(3, 1, chunks=2))
    (0, 1, 2, 2, 1, 0)
    """
    if shape.stages != 2 * shape.devices:
        raise ShapeError(
            f"{shape.stages} stages on {shape.devices} devices cannot form a V",
            hint="give every device 2 stages, or take a wave",
        )
    return wave_placement(shape)


def stages_of(placement: Sequence[int]) -> list[tuple[int, ...]]:
    """The stages of each device, in the order of the model.

    >>> stages_of((0, 1, 1, 0))
    [(0, 3), (1, 2)]
    """
    found: list[list[int]] = [[] for _ in range(max(placement) + 1)]
    for stage, device in enumerate(placement):
        found[device].append(stage)
    return [tuple(stages) for stages in found]

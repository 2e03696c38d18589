"""What communication costs a step, as people and scripts read it."""

from fractions import Fraction
from math import prod
from typing import Any

from penstock.arch.mesh_shape import MESH_SIZES
from penstock.cli._mesh import ModelFlags
from penstock.cli._record import plain, timeline_record
from penstock.sim.exposed import ExposedTimes

GIGA, GIBI = 10**9, 2**30


def milliseconds(seconds: Fraction | float) -> str:
    """Seconds as people read them here.

    >>> milliseconds(Fraction(1, 3)), milliseconds(0.0005)
    ('333.33', '0.50')
    """
    return f"{1000 * float(seconds):.2f}"


def mesh_words(flags: ModelFlags, devices: int) -> str:
    """What is trained, and on how many ranks.

    >>> mesh_words(ModelFlags("tiny", mesh="tensor=2,replicas=2"), 4)
    'tiny, 8192 tokens in a microbatch, on h200: replicas 2 x devices 4 x tensor 2 = 16 ranks'
    """
    shape = flags.shape
    sizes = {"replicas": shape.replicas, "devices": devices, "ring": shape.ring}
    sizes |= {"ulysses": shape.cell.ulysses, "tensor": shape.tensor}
    axes = [f"{axis} {size}" for axis, size in sizes.items() if size > 1 or axis == "devices"]
    return (
        f"{flags.model}, {flags.sequence} tokens in a microbatch, on {flags.machine}: "
        f"{' x '.join(axes)} = {prod(sizes.values())} ranks"
    )


def exposed_words(found: ExposedTimes) -> str:
    """What the step would be shorter by without some of its communication."""
    stages, copies = map(milliseconds, (found.boundaries_exposed, found.copies_exposed))
    return f"exposed: {stages} ms between stages, {copies} ms over copies of the weights"


EXPOSED_HEAD = ("device", "computing", "in the cell", "exposed", "sent GB", "peak GiB")


def exposed_rows(found: ExposedTimes) -> list[tuple[str, ...]]:
    """Milliseconds, and bytes, of one rank of each device."""
    sent = [sum(column) for column in zip(*found.sent.values())] or [0] * len(found.computing)
    peaks = found.timeline.peak
    times = zip(found.computing, found.inside, found.inside_exposed)
    return [
        (str(device), *map(milliseconds, each), f"{sent[device] / GIGA:.2f}", _gibi(peaks[device]))
        for device, each in enumerate(times)
    ]


def _gibi(size: Fraction) -> str:
    return f"{float(size / GIBI):.2f}"


def exposed_record(found: ExposedTimes, flags: ModelFlags) -> dict[str, Any]:
    """The fields of `simulate --json` with a model: seconds, and bytes, of one rank of each
    device."""
    devices = found.timeline.schedule.shape.devices
    sizes = {name: getattr(flags.shape, name) for name in MESH_SIZES}
    return timeline_record(found.timeline) | {
        "model": flags.model,
        "tokens": flags.sequence,
        "hardware": flags.machine,
        "mesh": {
            **sizes,
            "norms": flags.shape.norms,
            "shard": flags.shard,
            "ranks": flags.shape.ranks(devices),
        },
        "computing": list(found.computing),
        "inside": list(found.inside),
        "inside_exposed": list(found.inside_exposed),
        "boundaries_exposed": plain(found.boundaries_exposed),
        "copies_exposed": plain(found.copies_exposed),
        "sent": {axis: list(map(round, column)) for axis, column in found.sent.items()},
    }

"""What communicators take of a GPU, beside what a run allocates.

NCCL keeps buffers for every communicator, outside of torch's allocator. A rank is in one for each
direction in which its device exchanges with another, and in one for each group: all ranks, the
devices of its replica, the replicas of its device, the devices that share a weight.
"""

from collections.abc import Sequence

from penstock.core.homes import weight_homes
from penstock.core.program import Program
from penstock.plan.memory import Footprint

COMMUNICATOR_BYTES = 64 << 20
"""Of one communicator, measured on an H200."""


def communicators(program: Program, replicas: int = 1) -> tuple[int, ...]:
    """How many each device takes part in."""
    devices = program.schedule.shape.devices
    pairs = {(channel.source, channel.target) for channel in program.channels}
    groups = [range(devices)] * ((devices * replicas > 1) + (devices > 1) + (replicas > 1))
    members = [*pairs, *groups, *_sharers(program)]
    return tuple(sum(device in group for group in members) for device in range(devices))


def with_communicators(
    found: Sequence[Footprint], program: Program, replicas: int = 1
) -> tuple[Footprint, ...]:
    """What devices need that exchange over NCCL."""
    counts = communicators(program, replicas)
    return tuple(
        footprint._replace(communication=count * COMMUNICATOR_BYTES)
        for footprint, count in zip(found, counts)
    )


def _sharers(program: Program) -> list[set[int]]:
    """Devices that share a weight with others."""
    homes = weight_homes(program.schedule)
    shared = [{*homes[one], *homes[other]} for one, other in program.schedule.shape.ties]
    return [devices for devices in shared if len(devices) > 1]

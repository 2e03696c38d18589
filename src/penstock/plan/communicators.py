"""What communicators take of a GPU, beside what a run allocates.

NCCL keeps buffers for every communicator, outside of torch's allocator. A rank is in one for each
direction in which its device exchanges with another, and in one for each group: all ranks, the
devices of its replica, and these once more where they share the vocabulary, the replicas of its
device, the devices that share a weight.
"""

from collections.abc import Iterable, Sequence

from penstock.core.homes import shard_homes, weight_homes
from penstock.core.program import Channel, Program
from penstock.core.schedule import Schedule
from penstock.plan.memory import Footprint

FIRST_BYTES = 260 << 20
"""What the first communicator of a process takes, most of it for NCCL's own kernels."""
COMMUNICATOR_BYTES = 24 << 20
"""What each one takes: 16 to 18 MiB of a pair, 24 MiB of a group of four.

Both as the driver's free memory shows them on an H200 that ranks share (NCCL 2.31 with one thread
block for each communicator). NCCL may take more where it uses several."""


def communicators(program: Program, replicas: int = 1) -> tuple[int, ...]:
    """How many each device takes part in."""
    return communicator_counts(program.schedule, program.channels, replicas)


def communicator_counts(
    schedule: Schedule, channels: Iterable[Channel], replicas: int = 1
) -> tuple[int, ...]:
    """The same of a schedule whose devices exchange over these channels."""
    devices, sharded = schedule.shape.devices, schedule.shape.shards > 0
    pairs = {(channel.source, channel.target) for channel in channels}
    everybody = (devices * replicas > 1) + (devices > 1) * (1 + sharded) + (replicas > 1)
    groups = [range(devices)] * everybody
    members = [*pairs, *groups, *_sharers(schedule)]
    return tuple(sum(device in group for group in members) for device in range(devices))


def with_communicators(
    found: Sequence[Footprint], program: Program, replicas: int = 1
) -> tuple[Footprint, ...]:
    """What devices need that exchange over NCCL."""
    counts = communicators(program, replicas)
    return tuple(
        footprint._replace(communication=communication_bytes(count))
        for footprint, count in zip(found, counts)
    )


def communication_bytes(count: int) -> int:
    """What a process with so many communicators needs for them."""
    return FIRST_BYTES + count * COMMUNICATOR_BYTES if count else 0


def _sharers(schedule: Schedule) -> list[set[int]]:
    """Devices that share a weight with others."""
    homes = weight_homes(schedule) | shard_homes(schedule.shape)
    shared = [{*homes[one], *homes[other]} for one, other in schedule.shape.ties]
    return [devices for devices in shared if len(devices) > 1]

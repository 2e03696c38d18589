"""Who is where: copies of a pipeline side by side, each spread over its devices.

Rank r is device r % devices of replica r // devices, so that the ranks of one machine belong to as
few pipelines as possible: neighbours in a pipeline talk most.
"""

from dataclasses import dataclass, replace

from torch import distributed
from torch.distributed import ProcessGroup

from penstock.errors import RunError
from penstock.run.comm.collective import make_group


@dataclass(frozen=True)
class Mesh:
    """The place of one rank among replicas x devices, and the groups it belongs to."""

    replicas: int
    devices: int
    rank: int
    pipeline: ProcessGroup | None = None
    """The devices of this replica; a member's number there is its device."""
    copies: ProcessGroup | None = None
    """The ranks that hold the same stages in all replicas."""
    ends: ProcessGroup | None = None
    """The two devices of this replica that hold the embedding and the head; None elsewhere."""
    world: ProcessGroup | None = None

    @property
    def device(self) -> int:
        return self.rank % self.devices

    @property
    def replica(self) -> int:
        return self.rank // self.devices

    def ranks_of(self, replica: int) -> list[int]:
        """The ranks of one replica's pipeline, in the order of their devices."""
        return list(range(replica * self.devices, (replica + 1) * self.devices))


def make_mesh(replicas: int, devices: int, *, ends: tuple[int, int] = (0, 0)) -> Mesh:
    """The mesh over all ranks; every rank makes every group, in the same order.

    `ends` are the devices of the first and the last stage.
    """
    world = distributed.get_world_size() if distributed.is_initialized() else 1
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    if replicas * devices != world:
        raise RunError(
            f"{replicas} replica(s) x {devices} device(s) need {replicas * devices} ranks, but "
            f"{world} were started",
            hint=f"start {replicas * devices} ranks, or set devices and replicas to match",
        )
    mesh = Mesh(replicas, devices, rank)
    if world == 1:
        return mesh
    pipelines = [make_group(mesh.ranks_of(replica)) for replica in range(replicas)]
    copies = [make_group(list(range(device, world, devices))) for device in range(devices)]
    pairs = [make_group(_both(mesh.ranks_of(replica), ends)) for replica in range(replicas)]
    return replace(
        mesh,
        pipeline=pipelines[mesh.replica],
        copies=copies[mesh.device],
        world=distributed.group.WORLD,
        ends=pairs[mesh.replica] if mesh.device in ends and ends[0] != ends[1] else None,
    )


def _both(ranks: list[int], ends: tuple[int, int]) -> list[int]:
    """The ranks of both ends, which may be one."""
    return sorted({ranks[end] for end in ends})

"""Groups of ranks, each made once in a process.

A group of gloo is three threads and a socket to every member, one of the threads awake a hundred
times a second; one of NCCL is memory on the device. A process that builds one engine after the
other, as a comparison of every schedule does, would end with hundreds of both. So what is asked for
again, for the same purpose and with the same ranks, is what was made before.
"""

from itertools import count

from torch import distributed
from torch.distributed import ProcessGroup

from penstock.run.comm.collective import make_group

RankSets = tuple[tuple[int, ...], ...]


class GroupPool:
    """Groups that all ranks have made in one order, as long as torch's first group is there."""

    def __init__(self) -> None:
        self._world: ProcessGroup | None = None
        self._made: dict[tuple[object, RankSets, str | None], ProcessGroup | None] = {}
        self._numbers = count()

    def own(
        self, purpose: object, groups: list[list[int]], backend: str | None
    ) -> ProcessGroup | None:
        """The group of this rank among some; None where it is in none of them, or alone."""
        self._forget_what_was_taken_down()
        several = tuple(tuple(sorted(ranks)) for ranks in groups if len(ranks) > 1)
        asked = purpose, several, backend
        if asked not in self._made:
            self._made[asked] = _make(several, backend)
        return self._made[asked]

    def take_number(self) -> int:
        """Another number each time, to tell apart what goes over the same groups."""
        self._forget_what_was_taken_down()
        return next(self._numbers)

    def _forget_what_was_taken_down(self) -> None:
        if self._world is not distributed.group.WORLD:
            self._world, self._made, self._numbers = distributed.group.WORLD, {}, count()


def _make(several: RankSets, backend: str | None) -> ProcessGroup | None:
    """All ranks make all groups."""
    rank = distributed.get_rank() if several else 0
    made = [make_group([*ranks], backend) for ranks in several]
    return next((group for ranks, group in zip(several, made) if rank in ranks), None)


GROUP_POOL = GroupPool()
"""The groups of this process."""

"""Where a rank stands among the others, as the environment tells it.

Our launcher and torchrun describe a rank by the same variables, so that a program cannot tell which
of them started it. They are written and read here and nowhere else.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import ShapeError
from penstock.run.process import parent_process

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

_KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
}
"""Bytes. By default glibc returns every large tensor to the system when it is freed, and takes page
faults for the next one: these keep it."""


@dataclass(frozen=True)
class RankPlace:
    """One rank's position, and where the store is that all ranks share."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    address: str = "127.0.0.1"
    port: int = 0
    """0 for a rank that is alone and needs no store."""
    hosted: bool = False
    """Whether the store lives in a launcher and not in rank 0."""
    attempt: int = 0
    """How often the ranks have been started again; what earlier ones stored is not read."""

    @property
    def hosts(self) -> bool:
        """Whether this rank hosts the store."""
        return self.rank == 0 and not self.hosted

    def environment(self) -> dict[str, str]:
        """The variables that say so."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "TORCHELASTIC_USE_AGENT_STORE": str(self.hosted),
            "TORCHELASTIC_RESTART_COUNT": str(self.attempt),
        }


def read_place(environment: Mapping[str, str] = os.environ) -> RankPlace:
    """What the variables say; without them a rank is alone.

    >>> read_place({})
    RankPlace(rank=0, world=1, local_rank=0, local_world=1, address='127.0.0.1', port=0, \
hosted=False, attempt=0)
    >>> here = RankPlace(rank=3, world=4, local_rank=1, local_world=2, port=29500, hosted=True)
    >>> read_place(here.environment()) == here
    True
    """
    missing = [name for name in _NEEDED if not environment.get(name)]
    if len(missing) == len(_NEEDED):
        return RankPlace()
    if missing:
        raise ShapeError(
            f"{' and '.join(missing)} not set, but other variables of a launcher are",
            hint="start with `penstock train CONFIG -n RANKS` or with torchrun",
        )
    rank, world = _whole(environment, "RANK", 0), _whole(environment, "WORLD_SIZE", 1)
    if not 0 <= rank < world:
        raise ShapeError(f"RANK is {rank}, but WORLD_SIZE is {world}", hint="ranks count from 0")
    return RankPlace(
        rank=rank,
        world=world,
        local_rank=_whole(environment, "LOCAL_RANK", rank),
        local_world=_whole(environment, "LOCAL_WORLD_SIZE", world),
        address=environment["MASTER_ADDR"],
        port=_whole(environment, "MASTER_PORT", 0),
        hosted=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=_whole(environment, "TORCHELASTIC_RESTART_COUNT", 0),
    )


def _whole(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "") or str(default)
    if not text.isdecimal():
        raise ShapeError(f"{name} is {text!r}, but must be a whole number", hint=f"unset {name}")
    return int(text)


def child_environment(here: RankPlace) -> dict[str, str]:
    """The whole environment of a rank on this machine; what the user has set stays."""
    threads = max(1, (os.cpu_count() or 1) // here.local_world)
    defaults = {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo", **_KEEP_MEMORY}
    parent = {parent_process.VARIABLE: str(os.getpid())}
    return {**defaults, **os.environ, **here.environment(), **parent}

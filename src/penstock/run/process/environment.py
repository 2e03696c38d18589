"""Where a rank stands among the others, as the environment tells it.

Our launcher and torchrun describe a rank by the same variables, so that a program cannot tell which
of them started it. They are written and read here and nowhere else.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import ShapeError, shown

SECRET = "PENSTOCK_SECRET"
"""A word that only the ranks of this run know; our launcher makes one up."""
INTERFACE = "GLOO_SOCKET_IFNAME"
"""Network interfaces that gloo is to use, with commas between them."""
MOST_RANKS = 1 << 20
"""What is larger is a mistake: names and places of all ranks are listed."""
LAST_PORT = (1 << 16) - 1

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
    secret: str = field(default="", repr=False)
    """Stands in front of every key in the store."""

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
            SECRET: self.secret,
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
    world = _whole(environment, "WORLD_SIZE", 1, MOST_RANKS, least=1)
    rank = _whole(environment, "RANK", 0, MOST_RANKS)
    if rank >= world:
        raise ShapeError(f"RANK is {rank}, but WORLD_SIZE is {world}", hint="ranks count from 0")
    return RankPlace(
        rank=rank,
        world=world,
        local_rank=_whole(environment, "LOCAL_RANK", rank, world),
        local_world=_whole(environment, "LOCAL_WORLD_SIZE", world, world, least=1),
        address=environment["MASTER_ADDR"],
        port=_whole(environment, "MASTER_PORT", 0, LAST_PORT, least=1),
        hosted=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=_whole(environment, "TORCHELASTIC_RESTART_COUNT", 0, MOST_RANKS),
        secret=environment.get(SECRET, ""),
    )


def _whole(
    environment: Mapping[str, str], name: str, default: int, most: int, *, least: int = 0
) -> int:
    text = environment.get(name, "") or str(default)
    digits = text.lstrip("0") or "0"
    if not (text.isascii() and text.isdecimal()):
        raise ShapeError(f"{name} is {shown(text)}, but must be an integer", hint=f"unset {name}")
    if len(digits) > len(str(most)) or not least <= int(digits) <= most:
        raise ShapeError(
            f"{name} is {_short(digits)}, but must be from {least} to {most}", hint=f"unset {name}"
        )
    return int(digits)


def _short(digits: str) -> str:
    """A number as it is, or how long it is."""
    return digits if len(digits) <= 20 else f"a number of {len(digits)} digits"


def refuse_environment(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse what torch would end a process for, without saying which variable it was."""
    here = {name for _, name in socket.if_nameindex()}
    unknown = [name for name in environment.get(INTERFACE, "").split(",") if name not in here]
    if environment.get(INTERFACE) and unknown:
        raise ShapeError(
            f"{INTERFACE} names {shown(unknown[0])}, "
            f"but this machine has {', '.join(sorted(here))}",
            hint=f"unset {INTERFACE}, or name one of these",
        )


def child_environment(here: RankPlace) -> dict[str, str]:
    """The whole environment of a rank of a run on this machine; what the user has set stays."""
    threads = max(1, (os.cpu_count() or 1) // here.local_world)
    nearby = {INTERFACE: "lo", "NCCL_SOCKET_IFNAME": "lo"}
    defaults = {"OMP_NUM_THREADS": str(threads), **nearby, **_KEEP_MEMORY}
    return {**defaults, **os.environ, **here.environment()}

"""Jobs that the tests give to a crew."""

import os
import signal
import time

import torch
import torch.distributed as dist

from penstock.run.process.rendezvous import Connection


def whoami(connection: Connection) -> tuple[int, int, int]:
    return connection.rank, connection.world, os.getpid()


def total(connection: Connection, weight: float) -> float:
    value = torch.tensor(weight * (connection.rank + 1))
    dist.all_reduce(value)
    return float(value)


def threads(connection: Connection) -> int:
    return torch.get_num_threads()


def fails_everywhere(connection: Connection) -> None:
    raise ValueError(f"no good on rank {connection.rank}")


def fails_on(connection: Connection, rank: int) -> None:
    """One rank raises while the others wait for it."""
    if connection.rank == rank:
        raise ValueError(f"no good on rank {rank}")
    dist.recv(torch.zeros(1), src=rank)


def dies_on(connection: Connection, rank: int) -> None:
    """One rank is killed while the others wait for it."""
    if connection.rank == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.recv(torch.zeros(1), src=rank)


def stops_on(connection: Connection, rank: int) -> None:
    """One rank is stopped while the others wait for it."""
    if connection.rank == rank:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.recv(torch.zeros(1), src=rank)


def sleeps_on(connection: Connection, rank: int, seconds: float) -> None:
    if connection.rank == rank:
        time.sleep(seconds)


def hands_back(connection: Connection, megabytes: int) -> torch.Tensor:
    return torch.full((megabytes, 1 << 18), float(connection.rank))


def cannot_be_pickled(connection: Connection) -> object:
    return lambda: connection

"""The store: a small server of keys and values at which the ranks of a run meet.

Our launcher or torchrun hosts it, or rank 0 where neither is there. A connection to it answers one
question at a time, so everything that must work while the main thread hangs asks through a
connection of its own, a clone.

The store asks nobody who they are. So ours listens at one address only, loopback for a run on this
machine, and what a run stores stands under its secret.
"""

import socket
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import HashStore, PrefixStore, Store, TCPStore
from torch.distributed import DistError

from penstock.errors import RunError, ShapeError
from penstock.run.process.environment import RankPlace
from penstock.run.process.listener import HINT, await_listener

MEETING = timedelta(minutes=5)
"""How long the ranks of a run wait for each other at the start."""
PATIENCE = timedelta(days=1)
"""How long torch waits for another rank before it gives up. What is slow is not to be ended by a
timeout; what hangs is ended by the watchdog, which knows whom to blame."""
LOOPBACK = "127.0.0.1"


def store_of(here: RankPlace) -> Store:
    """The store of this attempt; a rank that is alone keeps one to itself."""
    if here.port == 0:
        return HashStore()
    try:
        store = host(here.address, here.port) if here.hosts else _client(here)
    except DistError as error:
        raise RunError(
            f"rank {here.rank} cannot reach the store at {here.address}:{here.port}: "
            f"{str(error).splitlines()[0]}",
            hint=HINT,
        ) from error
    return of_attempt(store, here)


def _client(here: RankPlace) -> TCPStore:
    await_listener(here, MEETING.total_seconds())
    return TCPStore(
        here.address, here.port, is_master=False, timeout=MEETING, wait_for_workers=False
    )


def assemble(store: Store, here: RankPlace, seconds: float = MEETING.total_seconds()) -> None:
    """Wait until every rank has come; torch would wait half an hour and not say for whom."""
    keys = [f"here/{rank}" for rank in range(here.world)]
    store.set(keys[here.rank], "here")
    if late := absent(store, keys, seconds):
        raise RunError(
            f"rank {', '.join(map(str, late))} of {here.world} has not connected "
            f"within {seconds:g} s",
            hint="check its output, and whether it is running",
        )


def absent(store: Store, keys: list[str], seconds: float) -> list[int]:
    """Which of some keys, one per rank, are still not set after so many seconds."""
    try:
        store.wait(keys, timedelta(seconds=seconds))
    except DistError:
        return [rank for rank, key in enumerate(keys) if not store.check([key])]
    return []


def host(address: str = LOOPBACK, port: int = 0) -> TCPStore:
    """A new store in this process that listens at one address, on a free port where none is given.

    Told only an address, torch listens at all that the machine has; so it is handed a socket.
    """
    listening = _listen(address, port)
    return TCPStore(
        address,
        listening.getsockname()[1],
        is_master=True,
        timeout=MEETING,
        wait_for_workers=False,
        master_listen_fd=listening.detach(),  # the store closes it
    )


def _listen(address: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address, port), family=family, backlog=socket.SOMAXCONN)
    except OSError as error:
        reason, *_ = str(error.strerror).split(" (while")  # what follows says the address again
        raise ShapeError(
            f"rank 0 cannot host the store at {address}:{port}: {reason}",
            hint="MASTER_ADDR must be an address of rank 0's machine, and MASTER_PORT must be free",
        ) from None


def of_attempt(store: Store, here: RankPlace) -> Store:
    """What the ranks of one attempt see of a store, which may outlive them and serve others."""
    return PrefixStore(f"{here.secret}/attempt-{here.attempt}", store)


def own_part(store: Store) -> Store:
    """The part of an attempt's store that is not torch's."""
    return PrefixStore("penstock", store)


def torchs(store: Store) -> Store:
    """The part of a store in which torch.distributed meets."""
    return PrefixStore("torch", store)


def clone(store: Store) -> Store:
    """The same store over a connection of its own."""
    untyped: Any = store  # the method is missing in torch's type stubs
    copy: Store = untyped.clone()
    return copy


def peek(store: Store, key: str) -> str:
    """The value of a key, or nothing where it is not set; never waits for it."""
    return store.get(key).decode() if store.check([key]) else ""

"""How a rank joins its run, whoever started it.

`penstock train -n 4`, `torchrun ... -m penstock train` and a bare process end up in one line of
code: the environment says where this rank stands and where the others can be met.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from penstock.parent_process import hold
from penstock.run.process.back_end import agreed_back_end, bind_device
from penstock.run.process.environment import RankPlace, read_place, refuse_environment
from penstock.run.process.store import PATIENCE, assemble, clone, own_part, store_of, torchs


@dataclass(frozen=True)
class Connection:
    """One rank's view of the run."""

    place: RankPlace
    store: Store
    """For questions of the main thread; others ask through a clone."""

    @property
    def rank(self) -> int:
        return self.place.rank

    @property
    def world(self) -> int:
        return self.place.world

    @property
    def alone(self) -> bool:
        """Whether this process is the whole run."""
        return self.place.world == 1

    def clone(self) -> Store:
        """The same store over a connection of its own."""
        return clone(self.store)


@contextmanager
def open_connection(backend: str = "") -> Iterator[Connection]:
    """A connection with its groups, which are taken down again."""
    connection = connect()
    with groups_taken_down():
        assemble(connection.store, connection.place)
        set_up_groups(connection, backend)
        yield connection


def connect() -> Connection:
    """Reach the store of the run that the environment describes; nobody is waited for yet."""
    hold()
    here = read_place()
    refuse_environment()
    return Connection(here, own_part(store_of(here)))


def set_up_groups(connection: Connection, backend: str = "") -> None:
    """Set up torch.distributed, for which all ranks have to be there.

    Without a word about the back end, the ranks agree on one.
    """
    here = connection.place
    chosen = backend or agreed_back_end(connection.store, here)
    device = bind_device(here) if "nccl" in chosen else None
    store = torchs(connection.store)
    store.set_timeout(PATIENCE)  # torch asks it for what slow ranks have still to put there
    dist.init_process_group(
        chosen,
        store=store,
        rank=here.rank,
        world_size=here.world,
        timeout=PATIENCE,
        device_id=device,
    )


@contextmanager
def groups_taken_down() -> Iterator[None]:
    """What the block has set up of torch.distributed is gone after it."""
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()

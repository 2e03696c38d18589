"""How a rank joins its run, whoever started it.

`penstock train -n 4`, `torchrun ... -m penstock train` and a bare process end up in one line of
code: the environment says where this rank stands and where the others can be met.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from penstock.run.process import parent_process
from penstock.run.process.environment import RankPlace, read_place
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
    """A connection that is taken down again."""
    connection = connect(backend)
    try:
        yield connection
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def connect(backend: str = "") -> Connection:
    """Join the run that the environment describes and set up torch.distributed.

    Without a word about the back end, tensors of CUDA devices go through NCCL where each rank of
    the machine has a device of its own, and everything else through gloo.
    """
    parent_process.hold()
    here = read_place()
    store = store_of(here)
    assemble(own_part(store), here)
    chosen = backend or back_end(here)
    if "nccl" in chosen:
        torch.cuda.set_device(here.local_rank)
    store.set_timeout(PATIENCE)  # torch asks it for what slow ranks have still to put there
    dist.init_process_group(
        chosen, store=torchs(store), rank=here.rank, world_size=here.world, timeout=PATIENCE
    )
    return Connection(here, own_part(store))


def back_end(here: RankPlace) -> str:
    """The back end that suits the devices of this machine."""
    own_device = torch.cuda.is_available() and torch.cuda.device_count() >= here.local_world
    return "cpu:gloo,cuda:nccl" if own_device and dist.is_nccl_available() else "gloo"

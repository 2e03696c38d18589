"""Which back end of torch.distributed a run uses: the same on every machine.

Tensors of CUDA devices go through NCCL where each rank has a device of its own. One machine may
have fewer devices than ranks while the others have enough; ranks that chose for themselves would
wait for each other in different back ends without end. So each rank states what its machine allows,
and NCCL is taken where all of them do.
"""

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from penstock.run.process.environment import RankPlace
from penstock.run.process.store import PATIENCE
from penstock.terminal import say_error

NCCL = "cpu:gloo,cuda:nccl"
GLOO = "gloo"


def agreed_back_end(store: Store, here: RankPlace) -> str:
    """The back end of all ranks; rank 0 says so where some of them cannot have NCCL."""
    keys = [f"back-end/{rank}" for rank in range(here.world)]
    store.set(keys[here.rank], own_back_end(here))
    store.wait(keys, PATIENCE)
    stated = [value.decode() for value in store.multi_get(keys)]
    without = [rank for rank, back_end in enumerate(stated) if back_end != NCCL]
    if 0 < len(without) < here.world and here.rank == 0:
        say_error(
            f"warning: {len(without):,} of {here.world:,} ranks have no GPU of their own, the "
            f"first of them rank {without[0]}: all ranks exchange through gloo, over the host\n"
            "hint: start as many ranks on each machine as it has GPUs"
        )
    return GLOO if without else NCCL


def own_back_end(here: RankPlace) -> str:
    """What suits the devices of this machine."""
    own_device = torch.cuda.is_available() and torch.cuda.device_count() >= here.local_world
    return NCCL if own_device and dist.is_nccl_available() else GLOO

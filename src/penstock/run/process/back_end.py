"""Which back end of torch.distributed a run uses: the same on every machine.

Tensors of CUDA devices go through NCCL where each rank has a device of its own, or where the NCCL
that is there lets ranks share one. One machine may allow it and another not; ranks that chose for
themselves would wait for each other in different back ends without end. So each rank states what
its machine allows, and NCCL is taken where all of them do.
"""

import os

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from penstock.run.process.environment import RankPlace
from penstock.run.process.nccl_version import nccl_version
from penstock.run.process.store import PATIENCE
from penstock.terminal import say_error

NCCL = "cpu:gloo,cuda:nccl"
SHARED_NCCL = "nccl with ranks that share a device"
"""What a rank states; the back end is NCCL then too."""
GLOO = "gloo"

SHARES_FROM = (2, 30)
"""The first NCCL in which ranks can share a device."""
ALLOWED = "NCCL_MULTI_RANK_GPU_ENABLE"
SHARED_SETTINGS = {ALLOWED: "1", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "1"}
"""What NCCL needs for it: kernels of all ranks must fit on the device at once, each with one block,
and the switches of NVLink cannot add up for two ranks of one device."""
OWN_ORDER = "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING"
"""Torch warns that the transfers of a group keep one order: ours have a group for each direction,
for that very reason."""


def agreed_back_end(store: Store, here: RankPlace) -> str:
    """The back end of all ranks; rank 0 says so where it is not what a user would expect."""
    keys = [f"back-end/{rank}" for rank in range(here.world)]
    store.set(keys[here.rank], own_back_end(here))
    store.wait(keys, PATIENCE)
    stated = [value.decode() for value in store.multi_get(keys)]
    if GLOO in stated:
        _say_without(stated, here)
        return GLOO
    if SHARED_NCCL in stated:
        _allow_sharing(here)
    return NCCL


def own_back_end(here: RankPlace) -> str:
    """What suits the devices of this machine."""
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return GLOO
    if torch.cuda.device_count() >= here.local_world:
        return NCCL
    refused = os.environ.get(ALLOWED) == "0"
    return SHARED_NCCL if nccl_version() >= SHARES_FROM and not refused else GLOO


def cuda_device(here: RankPlace) -> torch.device:
    """The GPU of a rank; ranks of one machine share its GPUs in turn."""
    return torch.device("cuda", here.local_rank % torch.cuda.device_count())


def bind_device(here: RankPlace) -> torch.device | None:
    """Make the GPU of this rank the current one; returns the one that its communicators are bound
    to, which are then made with their groups. A rank that is alone needs none."""
    os.environ.setdefault(OWN_ORDER, "false")
    device = cuda_device(here)
    torch.cuda.set_device(device)
    return device if here.world > 1 else None


def _say_without(stated: list[str], here: RankPlace) -> None:
    without = [rank for rank, back_end in enumerate(stated) if back_end == GLOO]
    if len(without) < here.world and here.rank == 0:
        say_error(
            f"warning: {len(without):,} of {here.world:,} ranks have no GPU of their own, the "
            f"first of them rank {without[0]}: all ranks exchange through gloo, over the host\n"
            "hint: start as many ranks on each machine as it has GPUs"
        )


def _allow_sharing(here: RankPlace) -> None:
    """Tell NCCL before it makes its first communicator; what the user has set stays."""
    for name, value in SHARED_SETTINGS.items():
        os.environ.setdefault(name, value)
    if here.rank == 0:
        values = ", ".join(f"{name}={os.environ[name]}" for name in SHARED_SETTINGS)
        say_error(f"ranks share a GPU, good for checking and not for speed: NCCL gets {values}")

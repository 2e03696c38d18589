"""Sums and gathers over groups, by way of the host where a group cannot take the tensor's device.

Ranks that share a GPU talk through gloo, which takes host tensors only.
"""

from collections.abc import Callable
from datetime import timedelta

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

Finish = Callable[[], None]

PATIENCE = timedelta(days=1)
"""How long torch waits for another rank before it gives up. What is slow is not to be ended by a
timeout; what hangs is ended by the watch, which knows whom to blame."""


def make_group(ranks: list[int] | None = None, backend: str | None = None) -> ProcessGroup:
    """A group of some ranks, or of all; every rank makes it. Torch would give it half an hour,
    whatever the first group was given."""
    group: ProcessGroup = distributed.new_group(ranks, PATIENCE, backend)
    return group


def meet(group: ProcessGroup | None) -> None:
    """Return once every member of the group has come; by way of the host, whatever computes."""
    add_up(torch.zeros(1), group)


def add_up(tensor: Tensor, group: ProcessGroup | None) -> None:
    """The sum over the group, in place; without a group there is nothing to add."""
    start_adding(tensor, group)()


def start_adding(tensor: Tensor, group: ProcessGroup | None) -> Finish:
    """Begin a sum over the group and return what waits for it."""
    if group is None or group.size() == 1:
        return lambda: None
    there = tensor if _takes(group, tensor.device) else tensor.cpu()
    work = distributed.all_reduce(there, group=group, async_op=True)

    def finish() -> None:
        work.wait()
        if there is not tensor:
            tensor.copy_(there)

    return finish


def gathered(tensor: Tensor, group: ProcessGroup) -> list[Tensor]:
    """The tensor of every member, in their order."""
    there = tensor if _takes(group, tensor.device) else tensor.cpu()
    found = [torch.empty_like(there) for _ in range(group.size())]
    distributed.all_gather(found, there.contiguous(), group=group)
    return [part.to(tensor.device) for part in found]


def _takes(group: ProcessGroup, device: torch.device) -> bool:
    """Whether the group moves tensors of that device."""
    backends = distributed.get_backend_config(group)
    return device.type == "cpu" or "nccl" in str(backends)

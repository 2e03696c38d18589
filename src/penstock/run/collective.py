"""Sums and gathers over groups, by way of the host where a group cannot take the tensor's device.

Ranks that share a GPU talk through gloo, which takes host tensors only.
"""

from collections.abc import Callable

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

Finish = Callable[[], None]


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

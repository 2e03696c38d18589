"""Sums and gathers over groups, by way of the host where a group cannot take the tensor's device.

Ranks that share a GPU talk through gloo, which takes host tensors only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from penstock.run.comm.launch_window import (
    HOST_DEVICE,
    LAUNCH_WINDOW,
    Neighbour,
    neighbour_over_host,
)
from penstock.run.process.store import PATIENCE

LAUNCH_TAG = 1
"""Of messages between members that launch a collective; torch gives others 0."""


def make_group(ranks: list[int] | None = None, backend: str | None = None) -> ProcessGroup:
    """A group of some ranks, or of all; every rank makes it. Torch would give it half an hour,
    whatever the first group was given."""
    group: ProcessGroup = distributed.new_group(ranks, PATIENCE, backend)
    return group


def meet(group: ProcessGroup | None) -> None:
    """Return once every member of the group has come; by way of the host, whatever computes."""
    add_up(torch.zeros(1), group)


def add_up(tensor: Tensor, group: ProcessGroup | None) -> None:
    """The sum over the group, in place; without a group or an element there is nothing to add."""
    if group is None or group.size() == 1 or not tensor.numel():
        return
    if tensor.device.type == "cpu":
        distributed.all_reduce(tensor, group=group)
    elif over_nccl(group, tensor.device):
        with launch_together(tensor.device, group):
            distributed.all_reduce(tensor, group=group)
    else:
        there = tensor.cpu()
        distributed.all_reduce(there, group=group)
        tensor.copy_(there)


def begin_sum(tensor: Tensor, group: ProcessGroup | None) -> Callable[[], object]:
    """Start the sum of a host tensor over the group, in place; returns what waits for its end."""
    if group is None or group.size() == 1:
        return lambda: None
    work = distributed.all_reduce(tensor, group=group, async_op=True)
    assert work is not None, "this rank is a member of the group"
    wait: Callable[[], object] = work.wait
    return wait


def gather_stacked(tensor: Tensor, group: ProcessGroup | None) -> Tensor:
    """The tensors of all members, one behind the other along a new first axis."""
    if group is None or group.size() == 1:
        return tensor.unsqueeze(0)
    if tensor.device.type == "cpu" or over_nccl(group, tensor.device):
        there = tensor
    else:
        there = tensor.cpu()
    found = [torch.empty_like(there) for _ in range(group.size())]
    with launch_together(there.device, group):
        distributed.all_gather(found, there, group=group)
    return torch.stack(found).to(tensor.device)


def largest(number: int, group: ProcessGroup | None) -> int:
    """The largest of the numbers that the members state."""
    return int(gather_stacked(torch.tensor([number]), group).max())


def tell_all(text: str, group: ProcessGroup | None) -> str:
    """What the first member says, at every member; the words of the others are not looked at."""
    if group is None or group.size() == 1:
        return text
    size = torch.tensor([len(text.encode()) if group.rank() == 0 else 0])
    add_up(size, group)
    letters = torch.zeros(int(size), dtype=torch.uint8)
    if group.rank() == 0 and text:
        letters = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    distributed.broadcast(letters, group=group, group_src=0)
    return letters.numpy().tobytes().decode()


@contextmanager
def launch_together(device: torch.device, group: ProcessGroup) -> Iterator[None]:
    """Around the launch of a collective: on a GPU no member launches before the devices of all can
    begin, and none begins another launch before all have. A collective that waits for a member
    spins on the device, and whatever synchronises the device meanwhile would wait with it."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.current_stream(device).synchronize()
    below, above = (_member(group, group.rank() + step) for step in (-1, 1))
    if above:
        above.hear()
    if below:
        below.tell()
    with LAUNCH_WINDOW.between(below, above):
        yield


def _member(group: ProcessGroup, rank: int) -> Neighbour | None:
    if not 0 <= rank < group.size():
        return None
    return neighbour_over_host(group._get_backend(HOST_DEVICE), rank, LAUNCH_TAG)


def connect_group(group: ProcessGroup | None, device: torch.device) -> None:
    """Make the communicator of a group ready, which blocks until every member does so."""
    if group is not None and device.type == "cuda":
        add_up(torch.zeros(1, device=device), group)
        torch.cuda.synchronize(device)


def over_nccl(group: ProcessGroup | None, device: torch.device) -> bool:
    """Whether the group moves tensors of that device through NCCL."""
    if group is None or device.type != "cuda":
        return False
    return "nccl" in str(distributed.get_backend_config(group))

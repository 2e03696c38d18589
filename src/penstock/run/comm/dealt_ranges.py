"""Sums and gathers of a flat tensor of which every member of a group owns a range.

    before             scatter_sum            gather_ranges
    rank 0   a a a     a+b+c  .     .         A  B  C
    rank 1   b b b       .  a+b+c   .         A  B  C
    rank 2   c c c       .    .   a+b+c       A  B  C

Both work in place, move each range once to each member that lacks it, and take ranges of any
lengths. Gloo's own sum of this kind is a sum for all, which moves twice as much (measured with
torch 2.13: 4 times the tensor for 3 ranks, against 2 times), so ranks send each other messages.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from penstock.arch.ownership import MESSAGE
from penstock.run.comm.collective import launch_together, over_nccl

Cuts = Sequence[int]
"""Where the range of each member begins, and the end of the last."""
_Way = Callable[[Tensor, Cuts, ProcessGroup], None]


def scatter_sum(tensor: Tensor, cuts: Cuts, group: ProcessGroup | None) -> None:
    """The sum over the group, each member's range at that member; what is left in the other
    ranges means nothing. Members are added up in their order, whoever owns an element."""
    if group is not None and group.size() > 1:
        own = _ranges(cuts)[group.rank()]
        _through(tensor, group, cuts, (_scatter_by_messages, _scatter_by_nccl), own)


def gather_ranges(tensor: Tensor, cuts: Cuts, group: ProcessGroup | None) -> None:
    """Each member's range at all members."""
    if group is not None and group.size() > 1:
        _through(tensor, group, cuts, (_gather_by_messages, _gather_by_nccl), slice(None))


def _through(
    tensor: Tensor, group: ProcessGroup, cuts: Cuts, ways: tuple[_Way, _Way], wanted: slice
) -> None:
    """By messages between hosts or by NCCL; from a GPU that NCCL does not serve by way of the host,
    from where what is wanted comes back."""
    by_messages, by_nccl = ways
    if over_nccl(group, tensor.device):
        with launch_together(tensor.device, group):
            by_nccl(tensor, cuts, group)
        return
    there = tensor.cpu()  # the tensor itself, where it is on the host
    by_messages(there, cuts, group)
    if there is not tensor:
        tensor[wanted].copy_(there[wanted])


def _ranges(cuts: Cuts) -> list[slice]:
    return [slice(start, stop) for start, stop in pairwise(cuts)]


def _scatter_by_messages(tensor: Tensor, cuts: Cuts, group: ProcessGroup) -> None:
    """Some elements of every range at a time, so that what has arrived stays small."""
    longest = max(stop - start for start, stop in pairwise(cuts))
    for first in range(0, longest, MESSAGE):
        _scatter_some(tensor, [_piece(one, first) for one in _ranges(cuts)], group)


def _piece(whole: slice, first: int) -> slice:
    start = min(whole.start + first, whole.stop)
    return slice(start, min(start + MESSAGE, whole.stop))


def _scatter_some(tensor: Tensor, ranges: list[slice], group: ProcessGroup) -> None:
    rank, own = group.rank(), tensor[ranges[group.rank()]]
    arrived = [own if n == rank else torch.empty_like(own) for n in range(group.size())]
    _exchange([tensor[one] for one in ranges], arrived, group)
    total, *rest = arrived
    for part in rest:
        total.add_(part)
    if rank:
        own.copy_(total)


def _gather_by_messages(tensor: Tensor, cuts: Cuts, group: ProcessGroup) -> None:
    parts = [tensor[one] for one in _ranges(cuts)]
    _exchange([parts[group.rank()]] * len(parts), parts, group)


def _exchange(sent: list[Tensor], received: list[Tensor], group: ProcessGroup) -> None:
    """Send every other member its tensor, and receive one from each; empty ones stay."""
    others = [member for member in range(group.size()) if member != group.rank()]
    arrivals = [
        distributed.irecv(received[member], group_src=member, group=group)
        for member in others
        if received[member].numel()
    ]
    departures = [
        distributed.isend(sent[member], group_dst=member, group=group)
        for member in others
        if sent[member].numel()
    ]
    for work in (*arrivals, *departures):
        assert work is not None  # only ranks outside of the group get none
        work.wait()


def _scatter_by_nccl(tensor: Tensor, cuts: Cuts, group: ProcessGroup) -> None:
    parts = [tensor[one] for one in _ranges(cuts)]
    own = parts[group.rank()]
    if equal_ranges(cuts):
        scatter = torch_function("reduce_scatter_single", "reduce_scatter_tensor")
        scatter(own, tensor[cuts[0] : cuts[-1]], group=group)
    else:
        distributed.reduce_scatter(own, parts, group=group)


def _gather_by_nccl(tensor: Tensor, cuts: Cuts, group: ProcessGroup) -> None:
    parts = [tensor[one] for one in _ranges(cuts)]
    own = parts[group.rank()]
    if equal_ranges(cuts):
        gather = torch_function("all_gather_single", "all_gather_into_tensor")
        gather(tensor[cuts[0] : cuts[-1]], own, group=group)
    else:
        distributed.all_gather(parts, own, group=group)


def equal_ranges(cuts: Cuts) -> bool:
    """Whether all ranges have one length: NCCL then has one call that copies nothing."""
    return len({stop - start for start, stop in pairwise(cuts)}) == 1


def torch_function(*names: str) -> Any:
    """The first of these functions that this torch has: 2.13 has given them other names."""
    return next(getattr(distributed, name) for name in names if hasattr(distributed, name))

"""Transfers of CUDA tensors: through NCCL, or by way of the host where ranks share a GPU."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from penstock.core.program import Channel
from penstock.run.comm.collective import make_group
from penstock.run.comm.transport import Arrival, Gloo
from penstock.run.program.compiled import Post


class Staged:
    """CUDA tensors by way of the host: several devices can share one GPU, which NCCL refuses."""

    def __init__(self, group: ProcessGroup) -> None:
        self._host = Gloo(group)

    def send(self, post: Post, tensor: Tensor) -> None:
        self._host.send(post, tensor.detach().cpu())

    def receive(self, post: Post, tensor: Tensor) -> Arrival:
        landing = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        return _Landing(self._host.receive(post, landing), landing, tensor)

    def drain(self) -> None:
        self._host.drain()

    def close(self) -> None:
        self._host.close()


class _Landing:
    """A transfer to the host that has still to go to the device."""

    def __init__(self, arrival: Arrival, landing: Tensor, tensor: Tensor) -> None:
        self._arrival, self._landing, self._tensor = arrival, landing, tensor

    def wait(self) -> None:
        self._arrival.wait()
        self._tensor.copy_(self._landing)


class PerChannel:
    """Transfers with a communicator for each directed edge and payload.

    On one NCCL communicator, transfers run in the order they are posted, sends and receives alike;
    with one for each channel the order is that of the channel, as the proof assumes.
    """

    def __init__(self, groups: Mapping[Channel, ProcessGroup], device: int) -> None:
        place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._backends = {c: group._get_backend(place) for c, group in groups.items()}
        self._device = device
        self._leaving: list[Any] = []

    def send(self, post: Post, tensor: Tensor) -> None:
        self._leaving = [work for work in self._leaving if not work.is_completed()]
        backend: Any = self._backends[Channel(self._device, post.peer, post.buf.name)]
        self._leaving.append(backend.send([tensor], _second(self._device, post.peer), 0))

    def receive(self, post: Post, tensor: Tensor) -> Arrival:
        backend: Any = self._backends[Channel(post.peer, self._device, post.buf.name)]
        arrival: Arrival = backend.recv([tensor], _second(self._device, post.peer), 0)
        return arrival

    def drain(self) -> None:
        for work in self._leaving:
            work.wait()
        self._leaving = []

    def close(self) -> None:
        self.drain()


def _second(device: int, peer: int) -> int:
    """The peer's number in a group of two, which are numbered in the order of their devices."""
    return int(peer > device)


def channel_groups(
    pipelines: Iterable[list[int]], channels: Iterable[Channel], device: int, rank: int
) -> dict[Channel, ProcessGroup]:
    """A group for each channel of each pipeline, made by all ranks in one order.

    Every rank must take part in the making of every group, in the same order: groups that only
    their members make have been seen to hang.
    """
    ordered = sorted(channels)
    mine: dict[Channel, ProcessGroup] = {}
    for ranks in pipelines:
        for channel in ordered:
            group = make_group(sorted((ranks[channel.source], ranks[channel.target])))
            if rank in ranks and device in (channel.source, channel.target):
                mine[channel] = group
    return mine

"""Transfers of GPU tensors through NCCL, none of which waits for a host that waits for it.

A NCCL kernel waits by spinning on the GPU until the other end has launched its own. Meanwhile
anything that synchronises the device waits too: loading a kernel, freeing memory, an allocator that
runs dry. If the other host then needs something of this one first, both wait for ever. So neither
end of a transfer is launched before both are ready:

    sender     the tensor is computed   announces   launches its send
    receiver   the slot is free         hears it    launches its receive

Each end of a channel is a thread with a CUDA stream of its own. It waits for its own device first,
then for the announcement, which goes over the host; after that it has nothing to wait for, and
nothing that the main thread does can come between. A channel (an edge and what it carries) has a
communicator of its own, so that transfers keep the order of the channel and of nothing else.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from penstock.core.program import Channel
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.side_stream import SideStream, Ticket, mark_of
from penstock.run.comm.transport import Arrival
from penstock.run.program.calls import Post

ANNOUNCEMENTS = 1
"""Tag of messages that only say that a transfer comes, where both go through one back end."""
TRANSFERS = 2

HOST_DEVICE = torch.device("cpu")


class End:
    """One end of a channel."""

    def __init__(self, group: ProcessGroup, source: bool, device: torch.device) -> None:
        self._peer = 1 - group.rank()
        host: Any = group._get_backend(HOST_DEVICE)
        wire: Any = group._get_backend(device)
        self._device = device
        self._stream = SideStream("sends" if source else "receives", device)
        self._move: Callable[..., Any] = wire.send if source else wire.recv
        self._speak: Callable[..., Any] = host.send if source else host.recv

    def connect(self) -> None:
        """The first transfer of a communicator blocks until the other end makes it too."""
        self._move([torch.zeros(1, device=self._device)], self._peer, TRANSFERS).wait()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def submit(self, tensor: Tensor) -> Ticket:
        """Move a tensor once both ends can, after those submitted before it."""
        return self._stream.submit(partial(self._transfer, tensor, mark_of(self._device)))

    def close(self) -> None:
        self._stream.close()

    def _transfer(self, tensor: Tensor, ready: Any) -> None:
        if ready is not None:
            ready.synchronize()
        self._speak([torch.zeros(1)], self._peer, ANNOUNCEMENTS).wait()
        self._move([tensor], self._peer, TRANSFERS).wait()
        if ready is not None:  # the tensor must stay until it has left
            mark_of(self._device).synchronize()


class Nccl:
    """Transfers with a communicator for each channel of a pipeline."""

    def __init__(self, mesh: Mesh, device: torch.device) -> None:
        self._mesh, self._device = mesh, device
        self._ends: dict[Channel, End] = {}
        self._opened: set[Channel] = set()
        self._leaving: list[Ticket] = []

    def open(self, channels: Iterable[Channel]) -> None:
        """Open and connect the channels that are new, in one order on all ranks."""
        for channel in sorted(set(channels) - self._opened):
            self._opened.add(channel)
            group = self._mesh.channel(channel, (channel.source, channel.target))
            if group is not None:
                end = End(group, channel.source == self._mesh.device, self._device)
                end.connect()
                self._ends[channel] = end

    def send(self, post: Post, tensor: Tensor) -> None:
        channel = Channel(self._mesh.device, post.peer, post.buf.name)
        self._leaving.append(self._ends[channel].submit(tensor))

    def receive(self, post: Post, tensor: Tensor) -> Arrival:
        channel = Channel(post.peer, self._mesh.device, post.buf.name)
        return self._ends[channel].submit(tensor)

    def drain(self) -> None:
        for ticket in self._leaving:
            ticket.wait()
        self._leaving = []

    def close(self) -> None:
        self.drain()
        for end in self._ends.values():
            end.close()

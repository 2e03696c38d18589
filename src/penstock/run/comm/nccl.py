"""Transfers of GPU tensors through NCCL, none of which waits for a host that waits for it.

A NCCL kernel waits by spinning on the GPU until the other end has launched its own. Meanwhile
anything that synchronises the device waits too: loading a kernel, freeing memory, an allocator that
runs dry. If the other host then needs something of this one first, both wait for ever. So neither
end of a transfer is launched before both are ready: the tensor is computed, and the memory that it
goes to is free. After that neither has anything to wait for, and what the main thread does in the
short time between the two launches is harmless too (run/comm/launch_window.py).

Each ordered pair of devices has a communicator of its own, for all that moves that way
(run/comm/pair.py); two devices that send to each other have two.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from penstock.core.program import Channel
from penstock.run.comm.launch_window import LAUNCH_WINDOW
from penstock.run.comm.mesh import Mesh
from penstock.run.comm.pair import End, ReceivingEnd, SendingEnd
from penstock.run.comm.side_stream import Ticket
from penstock.run.comm.transport import Arrival
from penstock.run.program.calls import Post

OrderedPair = tuple[int, int]
"""The device that sends, and the one that receives."""


class Nccl:
    """Transfers with a communicator for each ordered pair of devices of a pipeline."""

    def __init__(self, mesh: Mesh, device: torch.device) -> None:
        self._mesh, self._device = mesh, device
        self._number = mesh.take_number()
        self._ends: dict[OrderedPair, End] = {}
        self._opened: set[OrderedPair] = set()
        self._leaving: list[Ticket] = []

    def open(self, channels: Iterable[Channel]) -> None:
        """Open and connect the pairs that are new, in one order on all ranks."""
        wanted = {(channel.source, channel.target) for channel in channels}
        for pair in sorted(wanted - self._opened):
            self._opened.add(pair)
            group = self._mesh.pair(*pair)
            if group is not None:
                kind = SendingEnd if pair[0] == self._mesh.device else ReceivingEnd
                end = kind(group, self._device, self._number, LAUNCH_WINDOW, self._fail)
                end.connect()
                self._ends[pair] = end

    def send(self, post: Post, tensor: Tensor) -> None:
        end = self._ends[self._mesh.device, post.peer]
        self._leaving.append(end.submit(post.tag, tensor))

    def receive(self, post: Post, tensor: Tensor) -> Arrival:
        return self._ends[post.peer, self._mesh.device].submit(post.tag, tensor)

    def drain(self) -> None:
        leaving, self._leaving = self._leaving, []
        for ticket in leaving:
            ticket.wait()

    def close(self) -> None:
        """End the threads; what was sent has left only where it was drained before."""
        for end in self._ends.values():
            end.close()

    def _fail(self, failure: BaseException) -> None:
        """What cannot leave on one pair would be waited for on another."""
        for end in [*self._ends.values()]:
            end.fail(failure)

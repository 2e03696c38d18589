"""Orders between devices: an op that waits for one of another device, from which it gets nothing.

Two devices that share a way to the host take turns on it: a copy of one starts `after` a copy of
the other. Whoever comes first sends a message of one element when its op has ended, and the other
one waits for it. On a GPU a message leaves when the stream of its op has come to it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from penstock.core.graph import AFTER, graph_of
from penstock.core.meaning import writes
from penstock.core.program import Channel, Program
from penstock.run.program.calls import DROPPED, Post

TOKEN = ("token", 0)
"""What is sent, among what outlives a step."""


class OrderEdge(NamedTuple):
    """A row that waits for one of another device, and the tag of the message."""

    earlier: int
    later: int
    tag: int


def order_edges(program: Program) -> list[OrderEdge]:
    """All of them, in the order in which devices send, with tags behind those of transfers."""
    graph, device = graph_of(program.schedule), program.schedule.table.device
    apart = device[graph.reader] != device[graph.writer]
    found = np.flatnonzero(apart & (graph.buffer == AFTER)).tolist()
    first = len(program.moves.reader)
    rows = sorted(zip(graph.writer[found].tolist(), graph.reader[found].tolist()))
    return [OrderEdge(*pair, first + number) for number, pair in enumerate(rows)]


def order_channels(program: Program) -> set[Channel]:
    """Pairs of devices that such messages go between."""
    device = program.schedule.table.device.tolist()
    return {Channel(device[e.earlier], device[e.later], "after") for e in order_edges(program)}


class OrderMessages(NamedTuple):
    """The messages of one device, by the row that they follow or are waited for by."""

    sent: Mapping[int, Sequence[Post]]
    received: Mapping[int, Sequence[Post]]

    @classmethod
    def of(
        cls, program: Program, device: int, place_of: Callable[[str, int], int]
    ) -> "OrderMessages":
        sent: dict[int, list[Post]] = defaultdict(list)
        received: dict[int, list[Post]] = defaultdict(list)
        table, shape = program.schedule.table, program.schedule.shape
        for earlier, later, tag in order_edges(program):
            source, target = int(table.device[earlier]), int(table.device[later])
            if device in (source, target):
                what = (int(program.schedule.unit[earlier]), writes(table.op(earlier), shape)[0])
                if device == source:
                    sent[earlier].append(Post(target, tag, place_of(*TOKEN), *what))
                else:
                    received[later].append(Post(source, tag, DROPPED, *what))
        return cls(sent, received)

    @property
    def expected(self) -> tuple[Post, ...]:
        """All that this device waits for, in the order in which it is sent."""
        posts = (post for posts in self.received.values() for post in posts)
        return tuple(sorted(posts, key=lambda post: post.tag))

    def of_row(self, row: int) -> Sequence[Post]:
        return self.sent.get(row, ())

    def to(self, row: int) -> Sequence[Post]:
        return self.received.get(row, ())

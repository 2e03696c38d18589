"""How long a collective takes among ranks of some group.

With n ranks, S bytes in all, a rate B that a rank sends at and a latency L of a step, after NCCL's
own model (src/graph/tuning.cc):

    ring    sum for all        START + 2 (n - 1) L + 2 (n - 1)/n S/B
            gather, scatter    START +   (n - 1) L +   (n - 1)/n S/B
    tree    sum for all        START + 2 log2(n) L + 2 S/B
    message                    START + L + what is sent / B
    passing on                 START + L + what is sent / P
    exchange                   START + L + what is sent in the machine / B, or out of it / C,
                               whichever is longer

P is what one GPU sends to one other. NCCL sends a message over the card of its GPU alone, and only
rings and trees use the cards of all ranks in a machine (NCCL's channels). So where ranks pass
something round, the one that reaches the next machine is waited for: it has a card, or a part of
it where more groups leave the machine than it has cards. In an exchange all ranks send out at
once, each with its part C of the cards.

A sum for all takes the faster one, as NCCL chooses. In a group that reaches over machines a step of
a ring inside a machine has the machine's latency, one between machines the network's; a tree has
machines as its nodes, and a chain in each. How much of the rate a message reaches follows from its
size: START and steps are waited for before and between its bytes. A long message reaches
`MACHINE_SHARE` of the links' rate in a machine and `NETWORK_SHARE` of the cards' between machines.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2

from penstock.cluster.cluster import Cluster

START = 8.4e-6
"""Seconds before the first byte: NCCL's `baseLat`, protocol Simple."""
MACHINE_SHARE = 0.8
"""Assumption: nccl-tests report about 235 of 300 GB/s on A100 and 360 of 450 on H100."""
NETWORK_SHARE = 0.9
"""Assumption: what protocols leave of a card's rate."""


@dataclass(frozen=True)
class GroupLinks:
    """Ranks that talk to each other, alike in all machines that they are in."""

    cluster: Cluster
    ranks: int
    near: int
    """How many of them are in one machine."""

    @cached_property
    def machines(self) -> int:
        return -(-self.ranks // self.near)

    @cached_property
    def rate(self) -> float:
        """Bytes per second that a rank sends. What leaves a machine goes over the cards of all its
        ranks that are in the group."""
        inside = self.cluster.machine.group_rate(self.near) * MACHINE_SHARE
        if self.machines == 1:
            return inside
        outside = self.near * self.cluster.card_share * NETWORK_SHARE
        return min(inside, outside) if self.near > 1 else outside

    @cached_property
    def pass_rate(self) -> float:
        """Bytes per second of the slowest of messages that all ranks send to the next one."""
        cluster = self.cluster
        if self.machines == 1:
            return cluster.machine.group_rate(2) * MACHINE_SHARE
        leaving, network = cluster.machine.gpus / self.near, cluster.network
        own = max(network.rate, cluster.card_share)
        return min(own, network.cards * network.rate / leaving) * NETWORK_SHARE

    @cached_property
    def ring_latency(self) -> float:
        """Seconds of all steps once round: n - 1 of them."""
        between = self.machines if self.machines > 1 else 0
        inside = max(self.ranks - 1 - between, 0)
        near, far = self.cluster.machine.latency, self.cluster.network.latency
        return inside * near + min(between, self.ranks - 1) * far

    @cached_property
    def tree_latency(self) -> float:
        """Seconds from the leaves to the root."""
        machine, network = self.cluster.machine.latency, self.cluster.network.latency
        if self.machines == 1:
            return ceil(log2(self.ranks)) * machine
        return ceil(log2(self.machines)) * network + (self.near - 1) * machine

    @cached_property
    def step_latency(self) -> float:
        """Seconds of one message."""
        far = self.machines > 1
        return self.cluster.network.latency if far else self.cluster.machine.latency

    def sum_seconds(self, sent: float) -> float:
        """A sum for all, of which a rank of a ring sends so many bytes."""
        if self.ranks == 1:
            return 0.0
        if (measured := self._measured("sum", sent)) is not None:
            return measured
        ring = 2 * self.ring_latency + sent / self.rate
        tree = 2 * self.tree_latency + sent * self.ranks / (self.ranks - 1) / self.rate
        return START + min(ring, tree)

    def ring_seconds(self, sent: float) -> float:
        """A gather or a scattered sum."""
        if (measured := self._measured("gather", sent)) is not None:
            return measured
        return START + self.ring_latency + sent / self.rate if self.ranks > 1 else 0.0

    def pass_seconds(self, sent: float) -> float:
        """Every rank sends so many bytes to the next one at once."""
        if (measured := self._measured("message", sent)) is not None:
            return measured
        return START + self.step_latency + sent / self.pass_rate if self.ranks > 1 else 0.0

    def exchange_seconds(self, sent: float) -> float:
        """Every rank sends so many bytes to all others, each of them as much."""
        if self.machines == 1:
            return self.message_seconds(sent)
        outside = sent * (self.ranks - self.near) / (self.ranks - 1)
        far = outside / (self.cluster.card_share * NETWORK_SHARE)
        if self.near == 1:
            return START + self.step_latency + far
        near = (sent - outside) / (self.cluster.machine.group_rate(self.near) * MACHINE_SHARE)
        return START + self.step_latency + max(near, far)

    def message_seconds(self, sent: float) -> float:
        """One of two ranks sends something to the other."""
        if (measured := self._measured("message", sent)) is not None:
            return measured
        return START + self.step_latency + sent / self.rate if self.ranks > 1 else 0.0

    def _measured(self, name: str, sent: float) -> float | None:
        """What a profile of the machine says; it knows nothing of groups over machines."""
        kernels = self.cluster.gpu.measured
        if kernels is None or self.ranks == 1 or self.machines > 1:
            return None
        return kernels.collective_seconds(name, self.ranks, sent)

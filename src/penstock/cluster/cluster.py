"""GPUs in machines, and the links that they talk over.

Inside a machine a GPU talks to the others through a switch, at its full rate whatever the group, or
over a link of its own to each of them, of which a small group uses few. Between machines it talks
through network cards, which all GPUs of a machine share at once: groups are alike, so what one of
them sends the others send too.

    8 GPUs with 8 cards          a group with 1 rank in each machine has 1 card, with 8 ranks all 8
    8 GPUs with 4 cards          a group with 1 rank in each machine has half a card
"""

from dataclasses import dataclass
from typing import Literal, get_args

from penstock.cluster.gpu import Gpu
from penstock.errors import ShapeError

Wiring = Literal["switch", "direct"]
WIRINGS: tuple[Wiring, ...] = get_args(Wiring)
MOST_GPUS = 1 << 20
"""More than any cluster has."""


@dataclass(frozen=True)
class GpuMachine:
    """GPUs of a machine, and the links between them."""

    gpus: int
    rate: float
    """Bytes per second that a GPU sends to the others of its machine together."""
    latency: float
    """Seconds of a step of a collective."""
    wiring: Wiring = "switch"
    memory: int = 0
    """Bytes of its host; 0 where they are not known."""

    def group_rate(self, ranks: int) -> float:
        """Bytes per second that a rank of a group in one machine sends.

        >>> GpuMachine(8, 448.0, 0.0, "direct").group_rate(2)
        64.0
        """
        if self.wiring == "switch" or self.gpus == 1:
            return self.rate
        return self.rate * (ranks - 1) / (self.gpus - 1)


@dataclass(frozen=True)
class NetworkCards:
    """The network cards of a machine."""

    cards: int
    rate: float
    """Bytes per second that a card sends."""
    latency: float
    """Seconds of a step of a collective."""


@dataclass(frozen=True)
class Cluster:
    """Machines of one kind."""

    name: str
    gpu: Gpu
    machine: GpuMachine
    network: NetworkCards
    gpus: int
    """GPUs of all machines together."""

    def __post_init__(self) -> None:
        counts = {"gpus": self.gpus, "machine.gpus": self.machine.gpus}
        counts["network.cards"] = self.network.cards
        for name, count in counts.items():
            if not 1 <= count <= MOST_GPUS:
                raise ShapeError(f"{name} is {count:,}", hint=f"give 1 to {MOST_GPUS:,}")
        for name in ("machine", "network"):
            part = getattr(self, name)
            if not part.rate > 0 or part.latency < 0:
                raise ShapeError(
                    f"{name} has a rate of {part.rate:g} bytes/s and a latency of "
                    f"{part.latency:g} s",
                    hint="a rate is above 0, a latency 0 or more",
                )

    @property
    def text(self) -> str:
        """The name with its size, as the command line writes it."""
        return f"{self.name}:{self.gpus}"

    @property
    def card_share(self) -> float:
        """Bytes per second that a GPU sends over the network where all of its machine do."""
        return self.network.cards * self.network.rate / self.machine.gpus

"""What stages tell each other about the loads of experts, beside activations and gradients.

The auxiliary loss of a microbatch is a product of sums over all layers and all tokens
(model/layers/expert_loads.py). So loads are added up from stage to stage on the way forward, slice
by slice, in front of what one stage sends to the next. The last stage adds up slices and the ranks
that share tokens: before its first backward it knows the loads of the whole microbatch. The slope
that follows from them goes back in front of the gradients.

    x of the next stage        loads so far [2, experts] | [tokens, hidden]
    g of the stage before      slope [experts], zeros    | [tokens, hidden]

Both are in 64 bits, which lie in the message as so many elements of its type.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.mixture import ExpertMixture
from penstock.model.attention.piece import Piece
from penstock.model.layers.expert_loads import auxiliary_loss, loads_of, no_loads, slope_of
from penstock.model.parallel.cell import Cell
from penstock.model.parallel.group import Work

LOAD_BYTES = 8
"""Of one number of the loads."""


class LoadsAlone:
    """The memory of a sequence on a stage that has no layers."""

    loads: Tensor | None = None

    def open_gradients(self) -> "LoadsAlone":
        return self

    def close_gradients(self) -> None:
        return


class StagePlace(NamedTuple):
    """Where a stage stands in its model."""

    first: bool
    last: bool


def carried_elements(config: ModelConfig, element_bytes: int) -> int:
    """Elements of a message that stand for loads or slope; none without experts.

    >>> from penstock.arch.mixture import ExpertMixture
    >>> carried_elements(ModelConfig(1, 8, 8, 1, 1, 8, 9, mixture=ExpertMixture(8, 2)), 2)
    64
    """
    experts = config.mixture.experts if config.mixture else 0
    return 2 * experts * LOAD_BYTES // element_bytes


class NoLoads:
    """For models without experts: nothing goes along."""

    def memory(self, piece: Piece, memory: Any) -> Any:
        return memory

    def open(self, x: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        return x, None

    def add(self, loads: Tensor | None, saved: Any) -> Tensor | None:
        return None

    def close(self, loads: Tensor | None, memory: Any) -> Work[Tensor | None]:
        yield from ()
        return None

    def hand_on(self, rows: Tensor, loads: Tensor | None) -> Tensor:
        return rows

    def open_backward(
        self, piece: Piece, g: Tensor | None, loads: Tensor | None, memory: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        return g, None

    def hand_back(self, rows: Tensor, slope: Tensor | None) -> Tensor:
        return rows

    def add_loss(
        self, loss: Tensor | None, piece: Piece, loads: Tensor | None, memory: Any
    ) -> Tensor | None:
        return loss


NO_LOADS = NoLoads()


class CarriedLoads(NoLoads):
    """For models with experts."""

    def __init__(
        self, mixture: ExpertMixture, hidden: int, place: StagePlace, like: Tensor, cell: Cell
    ) -> None:
        self.mixture, self.hidden, self.place, self.cell = mixture, hidden, place, cell
        self.device = like.device
        self.counts = not any(
            group is not None and group.index for group in (cell.tensor, cell.ulysses, cell.ring)
        )
        """Whether this rank of its cell counts the loss, which all of them know."""

    def memory(self, piece: Piece, memory: Any) -> Any:
        """Where slices of the last stage add up, which may have no layers."""
        if memory is None and self.place.last and not piece.whole:
            return LoadsAlone()
        return memory

    def open(self, x: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """The rows of a message, and the loads in front of them."""
        if self.place.first or x is None:
            return x, no_loads(self.mixture, self.device)
        loads, rows = self._split(x)
        return rows, loads.clone()

    def add(self, loads: Tensor | None, saved: Any) -> Tensor | None:
        """The loads with those of one more layer."""
        assert loads is not None
        return loads.add_(loads_of(saved.experts.routed))

    def close(self, loads: Tensor | None, memory: Any) -> Work[Tensor | None]:
        """The loads behind a stage's layers; on the last one those of all ranks that share the
        tokens, added to those of slices before."""
        assert loads is not None
        if not self.place.last:
            return loads
        for group in (self.cell.ulysses, self.cell.ring):
            if group is not None:
                yield group.add_up(loads)
        if memory is not None:
            memory.loads = loads if memory.loads is None else memory.loads + loads
        return loads

    def hand_on(self, rows: Tensor, loads: Tensor | None) -> Tensor:
        """The message to the next stage; none follows the last one."""
        assert loads is not None
        return rows if self.place.last else self._joined(loads, rows)

    def open_backward(
        self, piece: Piece, g: Tensor | None, loads: Tensor | None, memory: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """The rows of a gradient, and the slope; on the last stage it follows from the loads."""
        if not self.place.last:
            assert g is not None
            front, rows = self._split(g)
            return rows, front[0].clone()
        total = self._total(piece, loads, memory)
        return g, slope_of(total, self.mixture).mul_(self.mixture.balance * piece.share)

    def hand_back(self, rows: Tensor, slope: Tensor | None) -> Tensor:
        """The message to the stage before."""
        assert slope is not None
        if self.place.first:
            return rows
        return self._joined(torch.stack((slope, torch.zeros_like(slope))), rows)

    def add_loss(
        self, loss: Tensor | None, piece: Piece, loads: Tensor | None, memory: Any
    ) -> Tensor | None:
        """The summed loss of a slice; with that of the last one the microbatch's auxiliary loss is
        counted, as many times as makes it what it is in the mean over labels."""
        if loss is None or not self.counts or piece.slice < piece.slices - 1:
            return loss
        found = auxiliary_loss(self._total(piece, loads, memory), self.mixture)
        return loss + found * (self.mixture.balance * piece.share / piece.scale)

    def _total(self, piece: Piece, loads: Tensor | None, memory: Any) -> Tensor:
        """The loads of the whole microbatch."""
        total: Tensor | None = loads if piece.whole else memory.loads
        assert total is not None
        return total

    def _joined(self, front: Tensor, rows: Tensor) -> Tensor:
        return torch.cat((front.flatten().view(rows.dtype), rows.flatten()))

    def _split(self, message: Tensor) -> tuple[Tensor, Tensor]:
        count = 2 * self.mixture.experts * LOAD_BYTES // message.element_size()
        front = message[:count].view(torch.float64).view(2, -1)
        return front, message[count:].view(-1, self.hidden)


def loads_on(
    config: ModelConfig, place: StagePlace, like: Tensor, cell: Cell
) -> NoLoads | CarriedLoads:
    """What a stage of a model carries."""
    if config.mixture is None:
        return NO_LOADS
    return CarriedLoads(config.mixture, config.hidden, place, like, cell)

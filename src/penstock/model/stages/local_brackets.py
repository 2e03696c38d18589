"""What goes past brackets that open and close on different stages of one device: it stays there.

Where devices have several stages, as in a V, both brackets of a pair may be on one device. Then
nothing but places and weights of kept tokens has to travel. What went into the bracket is kept from
its forward to its backward; its gradient waits from where the bracket closes to where it opened.
"""

from torch import Tensor

from penstock.arch.subsampling import Pair
from penstock.model.attention.piece import Piece


class LocalBrackets:
    """Shared by the stages of a device."""

    def __init__(self, pairs: frozenset[int] = frozenset()) -> None:
        """`pairs` are the numbers of those that stay."""
        self.pairs = pairs
        self._inputs: dict[tuple[int, int, int], Tensor] = {}
        self._gradients: dict[tuple[int, int, int], Tensor] = {}

    def __contains__(self, pair: Pair) -> bool:
        return pair.number in self.pairs

    def keep(self, piece: Piece, pair: Pair, x: Tensor) -> None:
        """What went into a bracket."""
        self._inputs[_key(piece, pair)] = x

    def find(self, piece: Piece, pair: Pair) -> Tensor:
        """The same where it closes; it stays for the backward, if there is one."""
        training = piece.levels is not None and piece.levels.moment is not None
        return self._inputs[_key(piece, pair)] if training else self.take(piece, pair)

    def take(self, piece: Piece, pair: Pair) -> Tensor:
        """The same where it is needed for the last time."""
        return self._inputs.pop(_key(piece, pair))

    def keep_gradient(self, piece: Piece, pair: Pair, dx: Tensor) -> None:
        self._gradients[_key(piece, pair)] = dx

    def take_gradient(self, piece: Piece, pair: Pair) -> Tensor:
        return self._gradients.pop(_key(piece, pair))


def _key(piece: Piece, pair: Pair) -> tuple[int, int, int]:
    return pair.number, piece.mb, piece.slice

"""What a pipeline is fed: token sequences with their labels and the documents inside them."""

from typing import NamedTuple

from torch import Tensor

IGNORE = -100
"""Label of a position that does not count: padding, or the last token of a document."""


class Microbatch(NamedTuple):
    """Some sequences of one length, side by side."""

    tokens: Tensor
    """Whole numbers, [rows, length]."""
    labels: Tensor
    """The token that follows each position, or IGNORE; [rows, length]."""
    documents: tuple[tuple[int, ...], ...]
    """Where the documents of each row start; the first one at 0."""

    @property
    def rows(self) -> int:
        return int(self.tokens.shape[0])

    @property
    def length(self) -> int:
        return int(self.tokens.shape[1])

    @property
    def valid(self) -> int:
        """Labels that count."""
        return int((self.labels != IGNORE).sum())

"""G: the weights of a stage, from all ranks that have ranges of them."""

from typing import Protocol

from penstock.run.program.values import Places, Values


class Gatherable(Protocol):
    """A stage and the buffer that its weights are gathered into."""

    def gather(self) -> None: ...


def gather_weights(
    kept: Gatherable, piece: None, values: Values, reads: Places, writes: Places
) -> None:
    """The buffer is filled; views of it are among the values since before the step."""
    kept.gather()

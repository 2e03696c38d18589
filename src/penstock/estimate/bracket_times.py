"""Seconds of the brackets of a model that leaves out tokens (model/layers/subsample.py).

They are kernels that move bytes. With n tokens outside of a pair and n' inside, rows of hidden
width are read or written

                    forward                         backward
    where it opens  scores n, kept tokens 2 n'      scores n, gradients 2 n + n'
    where it closes all tokens 2 n, kept 3 n'       gradients 2 n, of what was kept 4 n'

Scores are sorted and weights computed by kernels that take their start alone, and what becomes 32
bits on its way is not counted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.cost.collectives import BACKWARD_KINDS, FORWARD_KINDS
from penstock.cost.kept_workload import KeptWorkload
from penstock.estimate.products import KERNEL_START

BRACKET_KERNELS = 6
"""Kernels of a bracket in one pass. Assumption."""


class RowsMoved(NamedTuple):
    """Rows of hidden width for each token outside, and for each inside."""

    outside: int
    inside: int


OPENING = RowsMoved(1, 2), RowsMoved(3, 1)
CLOSING = RowsMoved(2, 3), RowsMoved(2, 4)
"""Forward and backward."""


def bracket_seconds(
    work: KeptWorkload, kind: str, tokens: Sequence[int], rows: int, rate: float
) -> NDArray[np.float64]:
    """Of ops of a kind on each stage, by slices of so many tokens, with sequences side by side and
    bytes of kernels in a second."""
    found = np.zeros((len(work.layers), len(tokens)))
    if kind not in FORWARD_KINDS + BACKWARD_KINDS:
        return found
    kept, width = work.subsampling, rows * work.model.boundary_bytes / rate
    for pair in kept.pairs:
        outside, inside = (
            np.array([kept.kept(n, level) for n in tokens])
            for level in (pair.level - 1, pair.level)
        )
        for layer, passes in ((pair.first, OPENING), (pair.last, CLOSING)):
            moved = passes[kind in BACKWARD_KINDS]
            stage = next(at for at, layers in enumerate(work.stage_layers) if layer in layers)
            rows_moved = moved.outside * outside + moved.inside * inside
            found[stage] += width * rows_moved + BRACKET_KERNELS * KERNEL_START
    return found * (np.array(tokens) > 0)

"""Seconds of the brackets of a model that leaves out tokens (model/layers/subsample.py).

They are kernels of PyTorch that move bytes, one for each step, most of them in 32 bits. With n
tokens outside of a pair and n' inside, they move as much as so many rows of hidden width with 16
bits:

                    forward                         backward
    where it opens  to 32 bits 3 n, scores 2 n      to 32 bits 3 n, gradient of the scorer 2 n
                    kept tokens 2 n'                what went past to 32 bits 3 n, scores added 4 n,
                                                    to 16 bits 3 n; gradients of kept tokens 7 n'
    where it closes all tokens 2 n                  gradients 2 n
                    kept ones 2 n'                  of kept ones 2 n'
                    both to 32 bits 6 n'            both to 32 bits 6 n'
                    weighed and added up 14 n'      their shares 6 n', gradients of tokens 6 n'
                    the same of the bypass 14 n'    to 16 bits 3 n', to their places 2 n'
                    to 16 bits 3 n'                 of weights and of the bypass 6 + 2 + 4 + 2 n'
                    to their places 2 n'            their shares 2 n', gradients inside 6 n'
                    difference 6 n', to 16 bits 3   to 16 bits 3 n'

Scores are sorted and weights computed by kernels that take their start alone.
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
    """Rows of hidden width with 16 bits for each token outside, and for each inside."""

    outside: int
    inside: int


OPENING = RowsMoved(5, 2), RowsMoved(15, 7)
CLOSING = RowsMoved(2, 50), RowsMoved(2, 50)
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

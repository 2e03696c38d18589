"""What a long sliding window adds to attention on a GPU: kernels for each block of it, and copies.

Keys in a window lie between two diagonals. A run computes long windows as triangles of as many
queries as the window has keys, one under the lower diagonal and one above the upper one. The latter
are given to a kernel in reverse order, and both results are joined (model/attention/tiled.py). So
queries beyond the window cost more than their pairs. A short window is one call of a kernel.
"""

from penstock.arch.config import ModelConfig
from penstock.arch.layers.attention import LONG_WINDOW
from penstock.cluster.gpu import PassShares
from penstock.estimate.layer_seconds import UnitTokens
from penstock.estimate.products import KERNEL_START

BLOCK_KERNELS = PassShares(13, 27)
"""Kernels of a block beside its triangles: reversing, changes of type, joining. From windows of 512
on an H200, where they take most of the time: a block takes 81 and 163 us."""
BLOCK_MOVED = PassShares(56, 86)
"""Bytes that they move for each element of 16 bits of the queries of a block. Measured on an H200
with 32 query and 8 key/value heads of 128 and a window of 4,096: a block takes 0.71 and 1.88 ms, of
which its triangles are 0.50 and 1.53. That it is as much with other heads is an assumption."""


WIDE_HEAD = 128
"""Widest head of the kernels that know no windows."""


def by_triangles(part: ModelConfig, window: int) -> bool:
    """Whether a run computes such a window as triangles; else it is one call of a kernel."""
    return window >= LONG_WINDOW and part.head_size <= WIDE_HEAD


def model_window(part: ModelConfig) -> int | None:
    """The window of a model whose layers all have it; None where some see all keys."""
    return part.window if all(map(part.has_window, range(part.layers))) else None


def tokens_beyond(unit: UnitTokens, window: int) -> float:
    """Tokens of a slice that do not see the first of the sequence any more.

    >>> tokens_beyond(UnitTokens(8, 8, 8, 0.0, 8.0 * 24), 20)
    4.0
    >>> tokens_beyond(UnitTokens(16, 16, 16, 0.0, 16.0 * 24, rows=2), 20)
    8.0
    """
    end, own = unit.square / unit.attended, unit.attended / unit.rows
    return unit.rows * min(own, max(0.0, end - window))


def window_seconds(
    part: ModelConfig, unit: UnitTokens, window: int, memory_rate: float
) -> PassShares:
    """Seconds of a layer's attention beside its triangles, forward and backward."""
    if not by_triangles(part, window):
        return PassShares(0.0, 0.0)
    beyond = tokens_beyond(unit, window)
    elements = beyond * part.attention.query_width * part.element_bytes / 2
    blocks = -(-beyond // (unit.rows * window))
    return PassShares(
        *(
            blocks * kernels * KERNEL_START + elements * moved / memory_rate
            for kernels, moved in zip(BLOCK_KERNELS, BLOCK_MOVED)
        )
    )

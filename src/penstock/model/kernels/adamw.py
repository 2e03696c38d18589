"""The end of a step over flat buffers: squares of all gradients in one pass, and AdamW in another.

A flat buffer is cut into blocks, none of which reaches from one parameter into the next, so that
what is known of a parameter (whether it decays, where its square belongs) is known of a block. The
update clips, moves the moments, decays, updates the main weights and rounds them to what is
computed with, while each number is at hand. Squares are added up in 64 bits and in one order.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple, Protocol

import torch
import triton
from torch import Tensor
from triton import language as tl

from penstock.arch.layers.parameter import TensorShape

PER_PROGRAM = 4096
"""Elements that a program takes."""
SUMS = 1024
"""Sums of blocks that are added up at a time."""
ALIGNED = 16
"""Where parameters begin and end at multiples of it, several elements are loaded at once."""


class FlatPart(Protocol):
    """What a flat buffer has of a parameter."""

    @property
    def shape(self) -> TensorShape: ...

    @property
    def offset(self) -> int: ...

    @property
    def stop(self) -> int: ...


class Blocks(NamedTuple):
    """The blocks of a flat buffer, one behind the other."""

    starts: Tensor
    sizes: Tensor
    decays: Tensor
    """1 for blocks of matrices, 0 for those of vectors."""
    first: Tensor
    """Where the blocks of each parameter begin among all, and the end."""
    aligned: bool

    @classmethod
    def of(cls, parts: Mapping[str, FlatPart], device: torch.device) -> "Blocks":
        """The blocks of these parameters."""
        cuts = [range(part.offset, part.stop, PER_PROGRAM) for part in parts.values()]
        decays = [float(len(part.shape) > 1) for part in parts.values()]
        return cls(
            torch.tensor([start for cut in cuts for start in cut], device=device),
            torch.tensor(
                [min(PER_PROGRAM, c.stop - start) for c in cuts for start in c], device=device
            ),
            torch.tensor([own for own, cut in zip(decays, cuts) for _ in cut], device=device),
            torch.tensor([*accumulate(map(len, cuts), initial=0)], device=device),
            all(end % ALIGNED == 0 for cut in cuts for end in (cut.start, cut.stop)),
        )


class Update(NamedTuple):
    """The numbers of one update."""

    factor: float
    """What gradients are multiplied by, to clip them."""
    rate: float
    """The learning rate over the correction of the first moment."""
    keep: float
    """What is left of a matrix that decays."""
    beta1: float
    beta2: float
    root: float
    """The root of the correction of the second moment."""
    epsilon: float


@triton.jit
def _adamw_update(
    main, value, grad, first, second, starts, sizes, decays,
    factor, rate, keep, beta1, beta2, root, epsilon,
    block: tl.constexpr, aligned: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    start, size = tl.load(starts + number), tl.load(sizes + number)
    if aligned:
        start, size = tl.multiple_of(start, 16), tl.multiple_of(size, 16)
    inside = tl.arange(0, block) < size
    at = start + tl.arange(0, block)
    g = tl.load(grad + at, mask=inside, other=0.0) * factor
    m = tl.load(first + at, mask=inside, other=0.0)
    v = tl.load(second + at, mask=inside, other=0.0)
    w = tl.load(main + at, mask=inside, other=0.0)
    m = m + (g - m) * (1 - beta1)
    v = v * beta2 + g * g * (1 - beta2)
    left = tl.where(tl.load(decays + number) > 0, keep, 1.0)
    w = w * left - rate * m / (tl.sqrt(v) / root + epsilon)
    tl.store(first + at, m, mask=inside)
    tl.store(second + at, v, mask=inside)
    tl.store(main + at, w, mask=inside)
    tl.store(value + at, w.to(value.dtype.element_ty), mask=inside)


@triton.jit
def _adamw_squares(grad, starts, sizes, sums, block: tl.constexpr, aligned: tl.constexpr):
    number = tl.program_id(0)
    start, size = tl.load(starts + number), tl.load(sizes + number)
    if aligned:
        start, size = tl.multiple_of(start, 16), tl.multiple_of(size, 16)
    inside = tl.arange(0, block) < size
    g = tl.load(grad + start + tl.arange(0, block), mask=inside, other=0.0).to(tl.float64)
    tl.store(sums + number, tl.sum(g * g, 0))


@triton.jit
def _adamw_totals(sums, first, totals, some: tl.constexpr):
    parameter = tl.program_id(0)
    begin, end = tl.load(first + parameter), tl.load(first + parameter + 1)
    total = tl.zeros([some], dtype=tl.float64)
    for at in range(begin, end, some):
        numbers = at + tl.arange(0, some)
        total += tl.load(sums + numbers, mask=numbers < end, other=0.0)
    tl.store(totals + parameter, tl.sum(total, 0))


def fused_update(
    main: Tensor, value: Tensor, grad: Tensor, moments: tuple[Tensor, Tensor],
    blocks: Blocks, update: Update,
) -> None:  # fmt: skip
    """One AdamW update of flat buffers that lie alike; `value` may be `main` itself."""
    if not len(blocks.starts):
        return
    _adamw_update[(len(blocks.starts),)](
        main, value, grad, *moments, blocks.starts, blocks.sizes, blocks.decays, *update,
        block=PER_PROGRAM, aligned=blocks.aligned, num_warps=8,
    )  # fmt: skip


def fused_squares(grad: Tensor, blocks: Blocks) -> Tensor:
    """The sum of squares of each parameter's gradient, in 64 bits."""
    count = len(blocks.starts)
    sums, totals = (
        grad.new_empty(size, dtype=torch.float64) for size in (count, len(blocks.first) - 1)
    )
    if count:
        _adamw_squares[(count,)](
            grad,
            blocks.starts,
            blocks.sizes,
            sums,
            block=PER_PROGRAM,
            aligned=blocks.aligned,
            num_warps=8,
        )
    _adamw_totals[(len(totals),)](sums, blocks.first, totals, some=SUMS)
    return totals

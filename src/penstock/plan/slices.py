"""Where to cut a sequence into slices.

Under causal attention a token attends to everything before it, so later tokens cost more. Slices of
equal length are then unequal work, and a pipeline runs at the pace of its slowest slice. The closed
form here gives slices of equal FLOPs: long ones first, short ones last.

A slice of n tokens that ends at position e costs

    n * linear + (n * e - n^2 / 2) * attention      FLOPs

where `linear` is FLOPs per token (weights), `attention` FLOPs per query-key pair. The bracket is
the number of pairs. Summed from the start, C(e) = linear * e + attention * e^2 / 2.
Source: arXiv:2406.03488, with the released code's rounding.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import isqrt

from penstock.arch.config import ModelConfig
from penstock.errors import ShapeError

COARSEST = 16
"""A border is moved by less than one part in twice this of an average slice."""

Lengths = tuple[int, ...]
"""Tokens of each slice, from the start of the sequence to its end."""


def even(length: int, count: int, *, unit: int = 1) -> Lengths:
    """`count` slices as equal in length as multiples of `unit` can be, the longer ones first.

    >>> even(16, 4), even(18, 4), even(35, 4, unit=8)
    ((4, 4, 4, 4), (5, 5, 4, 4), (11, 8, 8, 8))
    """
    _refuse_counts(length, count, unit)
    each, over = divmod(length // unit, count)
    tail = [(each + (slice < over)) * unit for slice in range(1, count)]
    return _with_first(length, tail, minimum=1)


def equal_flops(
    length: int, count: int, *, linear: int, attention: int, unit: int = 1, minimum: int = 1
) -> Lengths:
    """`count` slices of equal FLOPs; all but the first are rounded down to multiples of `unit`.

    >>> equal_flops(16, 4, linear=0, attention=1)
    (9, 3, 2, 2)
    """
    _refuse_counts(length, count, unit)
    if min(linear, attention) < 0 or linear == attention == 0:
        raise ShapeError(
            f"a token costs {linear} and a pair {attention} FLOPs: slices cannot be weighed",
            hint="give 0 or more, and not 0 for both",
        )
    end = length
    tail: list[int] = []
    twice_total = 2 * linear * length + attention * length**2
    while len(tail) < count - 1:
        tokens = _longest(end, twice_total, count, linear, attention) // unit * unit
        tail.append(tokens)
        end -= tokens
    return _with_first(length, tail[::-1], minimum=minimum)


def _longest(end: int, twice_total: int, count: int, linear: int, attention: int) -> int:
    """Most tokens before `end` that cost at most 1/count of the total, exactly.

    The smaller root of attention n^2 - 2 (linear + attention end) n + twice_total / count = 0, in
    whole numbers.
    """
    if attention == 0:
        return twice_total // (2 * linear * count)
    middle = count * (linear + attention * end)
    square = middle**2 - count * attention * twice_total
    root = isqrt(square)
    root += root * root < square  # round up, so that the quotient is rounded down
    return (middle - root) // (count * attention)


def equal_flops_of_model(
    model: ModelConfig, length: int, count: int, *, unit: int = 1, minimum: int = 1
) -> Lengths:
    """`count` slices of equal forward FLOPs of a whole model."""
    linear, attention = model.growing_flops(length)
    return equal_flops(
        length, count, linear=linear, attention=attention, unit=unit, minimum=minimum
    )


def align(lengths: Sequence[int], *, most: int = 128) -> Lengths:
    """The same slices with their borders moved to the nearest multiples of a power of two.

    Kernels like lengths that are multiples of 64 or so, and odd ones cost them some percent. The
    power is at most `most` and small against the slices, so that they stay nearly as they were.

    >>> align((391, 254, 204, 175))
    (384, 256, 208, 176)
    """
    average = sum(lengths) // len(lengths)
    unit = 1
    while 2 * unit <= min(most, average // COARSEST):
        unit *= 2
    inner = [round(end / unit) * unit for end in accumulate(lengths[:-1])]
    ends = [0, *inner, sum(lengths)]
    moved = tuple(end - start for start, end in pairwise(ends))
    return moved if min(moved) > 0 else tuple(lengths)


def flops_shares(lengths: Sequence[int], *, linear: int, attention: int) -> tuple[Fraction, ...]:
    """Share of the sequence's FLOPs that each slice has.

    >>> [str(share) for share in flops_shares(even(16, 4), linear=0, attention=1)]
    ['1/16', '3/16', '5/16', '7/16']
    """
    costs = [
        2 * tokens * linear + tokens * (2 * end - tokens) * attention
        for tokens, end in zip(lengths, accumulate(lengths))
    ]
    if min(lengths, default=0) < 1 or sum(costs) <= 0:
        raise ShapeError(
            f"slices of {', '.join(map(str, lengths)) or 'no'} tokens have no cost to share",
            hint="give slices of 1 token or more, and a positive cost",
        )
    return tuple(Fraction(cost, sum(costs)) for cost in costs)


def _with_first(length: int, tail: list[int], *, minimum: int) -> Lengths:
    """The slices with the first one added, which takes what the others leave."""
    lengths = (length - sum(tail), *tail)
    if min(lengths) < max(minimum, 1):
        raise ShapeError(
            f"{len(lengths)} slices of {length} tokens would have {', '.join(map(str, lengths))} "
            f"tokens, and one is below {max(minimum, 1)}",
            hint="take fewer slices, or a smaller unit or minimum",
        )
    return lengths


def _refuse_counts(length: int, count: int, unit: int) -> None:
    for name, value in (("length", length), ("count", count), ("unit", unit)):
        if value < 1:
            raise ShapeError(f"{name} is {value}, but must be at least 1", hint="give 1 or more")
    if count > length:
        raise ShapeError(
            f"{length} tokens cannot be cut into {count} slices",
            hint=f"take at most {length} slices",
        )

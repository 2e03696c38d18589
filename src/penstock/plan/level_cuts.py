"""Long sequences cut at equal cost instead of equal length.

A late slice of a sequence attends to everything before it, so of slices of equal length the last is
the dearest, and a pipeline runs at its pace. Where the last slice is not full, all cuts can move
backwards: the number of slices stays, none has more tokens than before, and the dearest one is as
cheap as it can be.

    9 tokens, slices of up to 4, cost of attention alone
    equal lengths   [aaaa][aaaa][a]      costs 16, 48, 17
    equal cost      [aaaa][aaa][aa]      costs 16, 33, 32

Source: arXiv:2503.02356 cuts at equal lengths; equal cost is that of arXiv:2406.03488 (Seq1F1B).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import isqrt

from penstock.plan.balance import TokenCost
from penstock.plan.packing import PackedPiece, Packing, Slice

FURTHEST = 1 << 62
"""Where slices end that cost nothing."""


def level_cuts(packing: Packing, cost: TokenCost) -> Packing:
    """The same sequences in as many slices, with long ones cut so that the dearest slice of each is
    as cheap as it can be.

    >>> from penstock.plan.packing import pack
    >>> level_cuts(pack([9], 4), TokenCost(linear=0, attention=1)).tokens
    ((4, 3, 2),)
    """
    levelled = (
        _levelled(slices, packing.size, cost) if len(slices) > 1 else slices
        for slices in packing.microbatches
    )
    return replace(packing, microbatches=tuple(levelled))


def _levelled(slices: Sequence[Slice], size: int, cost: TokenCost) -> tuple[Slice, ...]:
    """The slices of one long sequence, the last of which may have short ones behind its end."""
    last, *behind = slices[-1]
    sequence, length = last.sequence, last.stop
    tail, room = cost.of_slice(tuple(behind)), size - sum(p.stop - p.start for p in behind)
    least, most = 0, max(map(cost.of_slice, slices))
    while least < most:  # the smallest bound on a slice within which the sequence fits
        middle = (least + most) // 2
        ends = _ends(length, len(slices), size, middle - 2 * cost.slice, cost)
        start = ends[-1]
        fits = length - start <= room and cost.of(start, length) + tail <= middle
        least, most = (least, middle) if fits else (middle + 1, most)
    ends = [0, *_ends(length, len(slices), size, least - 2 * cost.slice, cost), length]
    pieces = [(PackedPiece(sequence, *each),) for each in pairwise(ends)]
    return (*pieces[:-1], (*pieces[-1], *behind))


def _ends(length: int, count: int, size: int, most: int, cost: TokenCost) -> list[int]:
    """Where all slices but the last end, if each is as long as it may be; a token is left for each
    slice that follows."""
    found, start = [], 0
    for left in range(count - 1, 0, -1):
        stop = min(_reach(start, most, cost), start + size, length - left)
        start = max(stop, start + 1)
        found.append(start)
    return found


def _reach(start: int, most: int, cost: TokenCost) -> int:
    """The last end of a slice that begins here and costs at most so much."""
    linear, pair = cost.linear, cost.attention
    if not (linear or pair):
        return FURTHEST
    whole = max(most + start * (2 * linear + pair * start), 0)
    if not pair:
        return whole // (2 * linear)
    return (isqrt(linear * linear + pair * whole) - linear) // pair

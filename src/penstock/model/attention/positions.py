"""Which tokens of a slice a rank has, where several ranks share it."""

from collections.abc import Sequence

from penstock.arch.dealing import deal
from penstock.model.attention.zigzag import zigzag_ranges
from penstock.model.parallel.cell import Cell
from penstock.model.parallel.group import RankGroup


def ring_positions(start: int, end: int, cell: Cell) -> tuple[range, ...]:
    """The positions of a slice start..end that the ranks of one place in the ring have."""
    if cell.ring is None:
        return (range(start, end),)
    return zigzag_ranges(start, end, cell.ring.index, cell.ring.size) or (range(start, start),)


def own_positions(start: int, end: int, cell: Cell) -> tuple[range, ...]:
    """The positions of a slice start..end that a rank has: its share of those of its place in the
    ring, one behind the other."""
    return shared_positions(start, end, cell, cell.ulysses)


def shared_positions(
    start: int, end: int, cell: Cell, exchange: RankGroup | None
) -> tuple[range, ...]:
    """The same where these ranks exchange, which may be some of those of the cell."""
    there = ring_positions(start, end, cell)
    if exchange is None:
        return there
    return cut_ranges(there, deal(sum(map(len, there)), exchange.index, exchange.size))


def cut_ranges(ranges: Sequence[range], span: range) -> tuple[range, ...]:
    """What lies in a span of some ranges, one behind the other.

    >>> cut_ranges([range(0, 3), range(9, 12)], range(2, 5))
    (range(2, 3), range(9, 11))
    """
    found, first = [], 0
    for each in ranges:
        inside = each[max(span.start - first, 0) : max(span.stop - first, 0)]
        first += len(each)
        if inside:
            found.append(inside)
    return tuple(found) or (range(ranges[0].start, ranges[0].start),)

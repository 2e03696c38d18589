"""A batch of documents as a policy runs it: which tokens of which documents each slice has.

Time depends on that and not on tokens alone, for a token attends to its own document. Padding is a
document too: it is computed like one.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.plan.ragged_batch import OrderedBatch
from penstock.plan.sequence_groups.groups import GroupedMicrobatch

DocumentRange = tuple[int, int]
"""First token of a document that a slice has, and the one behind its last."""
SliceDocuments = tuple[DocumentRange, ...]


class GroupDocuments(NamedTuple):
    """The documents that some ranks of a device share."""

    degree: int
    """How many ranks."""
    documents: SliceDocuments


class ArrangedStep(NamedTuple):
    """A step of one replica."""

    schedule: Schedule
    slices: tuple[tuple[SliceDocuments, ...], ...]
    """Of each microbatch."""
    groups: tuple[tuple[GroupDocuments, ...], ...] = ()
    """Of each microbatch, where ranks of a device have documents of their own."""
    padded: tuple[bool, ...] = ()
    """Whether the last document of each microbatch is padding; none is where it is empty."""

    @property
    def lengths(self) -> tuple[tuple[int, ...], ...]:
        """Tokens of each slice of each microbatch."""
        return tuple(tuple(map(tokens_of, slices)) for slices in self.slices)

    @property
    def fullest(self) -> tuple[int, ...]:
        """Tokens of the rank that has most of each microbatch of groups."""
        return tuple(
            max(-(-tokens_of(each.documents) // each.degree) for each in some)
            for some in self.groups
        )

    @property
    def pairs(self) -> tuple[tuple[int, ...], ...]:
        """Twice the query-key pairs of each slice of each microbatch."""
        return tuple(tuple(map(doubled_pairs, slices)) for slices in self.slices)


def tokens_of(documents: SliceDocuments) -> int:
    return sum(stop - start for start, stop in documents)


def doubled_pairs(documents: SliceDocuments) -> int:
    """Twice the pairs of a query and a key of the same document before it.

    >>> doubled_pairs(((0, 4), (4, 6)))
    36
    """
    return sum((stop - start) * (stop + start) for start, stop in documents)


DocumentRow = Sequence[int]
"""Tokens of each document of a sequence, padding as the last one."""


def packed_step(
    schedule: Schedule, rows: Sequence[Sequence[DocumentRow]], lengths: Sequence[Sequence[int]]
) -> ArrangedStep:
    """Microbatches of sequences of one length, cut at the same places."""
    found = []
    for microbatch, cut in zip(rows, lengths, strict=True):
        edges = [0, *accumulate(cut)]
        whole = [[*accumulate(row, initial=0)] for row in microbatch]
        found.append(
            tuple(
                tuple(piece for ends in whole for piece in _between(ends, first, last))
                for first, last in pairwise(edges)
            )
        )
    return ArrangedStep(schedule, tuple(found))


def _between(ends: Sequence[int], first: int, last: int) -> list[DocumentRange]:
    """The documents of a row that a slice has, counted from where each begins.

    >>> _between([0, 3, 8], 2, 6)
    [(2, 3), (0, 3)]
    """
    return [
        (max(first, start) - start, min(last, stop) - start)
        for start, stop in pairwise(ends)
        if start < last and stop > first
    ]


def sliced_step(batch: OrderedBatch) -> ArrangedStep:
    """A batch that was packed into slices and ordered."""
    return ArrangedStep(
        batch.schedule,
        tuple(
            tuple(tuple((piece.start, piece.stop) for piece in slice) for slice in slices)
            for slices in batch.packing.microbatches
        ),
    )


def grouped_step(
    schedule: Schedule, lengths: Sequence[int], ordered: Sequence[GroupedMicrobatch]
) -> ArrangedStep:
    """Microbatches of groups in the order of a schedule, which may have some more of one token."""
    more = schedule.shape.microbatches - len(ordered)
    if more < 0 or max(schedule.shape.slices) > 1:
        raise ShapeError(
            f"{schedule.name} has {schedule.shape.units} slices for {len(ordered)} microbatches of "
            "groups",
            hint="take an order of whole microbatches, as many as there are",
        )
    groups = [
        tuple(
            GroupDocuments(group.degree, tuple((0, lengths[number]) for number in group.members))
            for group in microbatch.groups
        )
        for microbatch in ordered
    ]
    groups += [(GroupDocuments(1, ((0, 1),)),)] * more
    slices = tuple((tuple(each for group in some for each in group.documents),) for some in groups)
    return ArrangedStep(schedule, slices, tuple(groups))

"""Rows of tokens on their way to experts that other ranks own, and back.

Where replicas share the experts of a layer, each of them owns some, and routes tokens of its own.
Every rank first learns how many rows each rank has for each expert. Then rows go to the owners
(all-to-all), which sort what came from all ranks by expert; results go back the same way.

    rank 0   rows for experts  0 0 1 | 2 3      keeps 0 0 1, sends 2 3
    rank 1   rows for experts  1     | 2 2      sends 1, keeps 2 2
    then     rank 0 has 0 0 1 1, rank 1 has 2 2 2 3

Nothing is dropped and nothing filled up: messages are as long as their rows, on a rank that nobody
has chosen too.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.dealing import deal
from penstock.model.parallel.group import RankGroup, Work


class ExpertVisit(NamedTuple):
    """How rows lie at their experts."""

    ends: Tensor
    """One behind the last row of each expert that is here."""
    order: Tensor | None = None
    """Where each row came in, of all rows that did; None: rows have not moved."""
    leaving: tuple[int, ...] = ()
    """Rows for the experts of each rank."""
    coming: tuple[int, ...] = ()
    """Rows that each rank has for the experts of this one."""


def plan_visit(group: RankGroup | None, ends: Tensor) -> Work[ExpertVisit]:
    """Where rows go that lie by expert and end there."""
    if group is None:
        return ExpertVisit(ends)
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    every, pending = group.gather(counts.unsqueeze(0), [1] * group.size)
    yield pending
    own = _experts_of(group.index, group.size, len(counts))
    leaving = [int(counts[_experts_of(to, group.size, len(counts))].sum()) for to in _ranks(group)]
    here = every[:, own]
    expert = torch.arange(here.shape[1], device=ends.device).repeat(group.size)
    order = expert.repeat_interleave(here.flatten().long()).argsort(stable=True)
    coming = [int(rows) for rows in here.sum(1).tolist()]
    return ExpertVisit(here.sum(0).cumsum(0).int(), order, (*leaving,), (*coming,))


def to_experts(group: RankGroup | None, visit: ExpertVisit, rows: Tensor) -> Work[Tensor]:
    """Rows [rows, ...] of this rank's tokens -> rows for the experts that are here."""
    if group is None or visit.order is None:
        return rows
    came = yield from _exchanged(group, rows, visit.leaving, visit.coming)
    return came[visit.order]


def from_experts(group: RankGroup | None, visit: ExpertVisit, rows: Tensor) -> Work[Tensor]:
    """The way back."""
    if group is None or visit.order is None:
        return rows
    as_they_came = torch.empty_like(rows).index_copy_(0, visit.order, rows)
    return (yield from _exchanged(group, as_they_came, visit.coming, visit.leaving))


def _exchanged(
    group: RankGroup, rows: Tensor, leaving: Sequence[int], coming: Sequence[int]
) -> Work[Tensor]:
    sizes = [(count, *rows.shape[1:]) for count in coming]
    landed, pending = group.exchange(torch.split(rows, [*leaving]), sizes)
    yield pending
    return torch.cat(landed)


def _experts_of(rank: int, ranks: int, experts: int) -> slice:
    own = deal(experts, rank, ranks)
    return slice(own.start, own.stop)


def _ranks(group: RankGroup) -> range:
    return range(group.size)

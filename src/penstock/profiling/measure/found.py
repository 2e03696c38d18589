"""What ranks measured in some rounds, as one: which of it counts.

The device of a rank alone says it all: on a GPU the median of its rounds counts, on a host the
least. The ranks of a host are disturbed, each at other times, by each other and by whoever else
uses the machine, which is slower for seconds at a time. So there all ranks count:

    rounds    what is measured in a round is as many times slower as its profiled step is
    kernels   the median of all ranks and rounds, the speed of the round apart
    steps     the same; of its seconds each op has its mean share

With medians of ops, the time by which an op is disturbed would count as time between ops.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median, median_low
from typing import NamedTuple

import torch

from penstock.profiling.measure.steps import MeasuredSteps
from penstock.profiling.measure.timing import usual
from penstock.profiling.modules import MeasuredRow

RATES = ("flops_per_second", "bytes_per_second")


class MeasuredRound(NamedTuple):
    """All that is measured, once."""

    steps: Sequence[MeasuredSteps]
    """Of each case, the profiled one first."""
    kernels: Mapping[str, Sequence[MeasuredRow]]


class RankFound(NamedTuple):
    """What one rank measured."""

    made: MeasuredRow
    machine: MeasuredRow
    fused: bool
    rounds: Sequence[MeasuredRound]
    copies: Sequence[MeasuredRow]

    @property
    def device(self) -> torch.device:
        return torch.device(self.machine["device"])


def usual_steps(found: Sequence[RankFound], case: int) -> MeasuredSteps:
    """Steps of a case, as they usually are, with those of all rounds."""
    all_of_it = [each.steps[case] for rank in found for each in rank.rounds]
    one = _common(found, case) if len(found) > 1 else _of_rank(found[0], case)
    return replace(one, each=[step for steps in all_of_it for step in steps.each])


def usual_rows(found: Sequence[RankFound], name: str) -> list[MeasuredRow]:
    """Of each kernel the row that counts."""
    slower = speeds(found) if len(found) > 1 else [1.0] * len(found[0].rounds)
    rounds = [
        [_faster(row, by) for row in each.kernels[name]]
        for rank in found
        for each, by in zip(rank.rounds, slower)
    ]
    return [_usual_row(rows, found) for rows in zip(*rounds)]


def speeds(found: Sequence[RankFound]) -> list[float]:
    """How much slower all ranks were in each round than they usually are."""
    rounds = zip(*(rank.rounds for rank in found))
    seconds = [fmean(each.steps[0].seconds for each in ranks) for ranks in rounds]
    return [each / median(seconds) for each in seconds]


def _common(found: Sequence[RankFound], case: int) -> MeasuredSteps:
    slower = speeds(found)
    rounds = [(each.steps[case], by) for rank in found for each, by in zip(rank.rounds, slower)]
    seconds = median(steps.seconds / by for steps, by in rounds)
    ops = {
        op: seconds * fmean(steps.ops[op] / steps.seconds for steps, _ in rounds)
        for op in rounds[0][0].ops
    }
    clearing = median(steps.clearing / by for steps, by in rounds)
    return replace(rounds[0][0], seconds=seconds, ops=ops, clearing=clearing)


def _of_rank(rank: RankFound, case: int) -> MeasuredSteps:
    rounds = [each.steps[case] for each in rank.rounds]
    seconds = usual((each.seconds for each in rounds), rank.device)
    return next(each for each in rounds if each.seconds == seconds)


def _faster(row: MeasuredRow, by: float) -> MeasuredRow:
    """A row as it would be in a round of the usual speed."""
    rates = {name: row[name] * by for name in RATES if name in row}
    return row | rates | {"seconds": row["seconds"] / by}


def _usual_row(rows: Sequence[MeasuredRow], found: Sequence[RankFound]) -> MeasuredRow:
    each = [row["seconds"] for row in rows]
    seconds = median_low(each) if len(found) > 1 else usual(each, found[0].device)
    return next(row for row in rows if row["seconds"] == seconds)

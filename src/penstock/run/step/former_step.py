"""The step before the one under way, whose early updates have still to be confirmed.

A stage updates itself early where nothing that its rank knows forbids it: its part of the loss is a
number, and its part of the norm is one too and not above the limit. Norms only grow when more parts
are added, so a stage that has refused was right to; one that has not may have been wrong. When the
sum over all ranks is there, each of them finds the same:

    norm within the limit    every stage was updated, by the gradient as it is: done
    norm above the limit     what was updated is put back, and all are updated by clipped gradients
    no number                what was updated is put back, and the step is refused

What a device had begun of the next step in the second case was computed with wrong weights and is
run again (run/program/begun_transfers.py). Gradients stay until then, and are zeroed here.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from penstock.errors import RunError
from penstock.run.comm.side_stream import Ticket
from penstock.run.step.optimizer import clip_factor
from penstock.run.step.outcome import Outcome, Totals
from penstock.run.step.stage_end import Rate, StageEnd
from penstock.run.watchdog.position import Tracker

FORMER = ("former", 0)
"""Where programs find it among what outlives steps."""


def left_totals(tracker: Tracker, left: Sequence[Ticket], sums: Mapping[str, Tensor]) -> Totals:
    """What a step came to whose sums were left under way."""
    with tracker.gathers("add up the loss and the norm"):
        for ticket in left:
            ticket.wait()
    return Totals.of(sums["norm"])


class Unconfirmed(NamedTuple):
    """A step that has ended on this rank."""

    totals: Callable[[], Totals]
    """Waits for what all ranks came to."""
    rate: Rate
    labels: int


@dataclass
class FormerStep:
    """What a rank knows of the steps that it has behind it."""

    ends: Collection[StageEnd]
    """All stages of this rank."""
    step: Unconfirmed | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    """Of steps that are settled, until somebody takes them."""
    _left: set[StageEnd] = field(default_factory=set)

    def leave(self, step: Unconfirmed) -> None:
        """A step has ended with early updates."""
        self.step, self._left = step, {*self.ends}

    def confirm(self, kept: StageEnd) -> bool:
        """Settle the update of one stage; returns whether it was the last one, and weights are not
        what was computed with since. Where the step came to no number it is refused then."""
        if self.step is None or kept not in self._left:
            return False
        totals, rate = self.step.totals(), self.step.rate
        kept.confirm(totals, rate)
        kept.weights.grad.zero_()
        self._left.discard(kept)
        return not self._left and self._close(totals, rate, self.step.labels)

    def settle(self) -> None:
        """Settle all stages, where nothing of another step has begun."""
        for kept in self.ends:
            self.confirm(kept)

    def take(self) -> list[Outcome]:
        """Outcomes that nobody has taken, in the order of their steps."""
        taken, self.outcomes = self.outcomes, []
        return taken

    def _close(self, totals: Totals, rate: Rate, labels: int) -> bool:
        self.step = None
        if not totals.is_number(rate.scale):
            raise RunError(
                f"the loss is {totals.loss * rate.scale} and the norm of the gradient "
                f"{totals.norm} in the step before this one, whose update was taken back",
                hint="lower the learning rate or clip the gradient; the weights are those before "
                "that step",
            )
        self.outcomes.append(Outcome.of(totals, labels))
        return clip_factor(totals.norm, next(iter(self.ends)).clip) < 1

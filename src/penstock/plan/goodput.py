"""What part of the time of a long training is progress, when machines fail.

A training on many devices stops whenever one of them fails, starts again from its last checkpoint,
and has lost what it did since. Checkpoints more often lose less, and take more time themselves. For
failures that come at random at a constant rate there is an exact answer. With w seconds of work
between two checkpoints of c seconds each, a restart of r seconds, and a failure every M seconds on
average, the next checkpoint is reached after

    M exp(r / M) (exp((w + c) / M) - 1)

seconds on average: work, checkpoint and restart can each be cut off and begin again. The part w of
this is the goodput. It is largest where x = w / M fulfils (1 - x) exp(x + c / M) = 1.
"""

from math import exp, expm1, floor, inf, log1p
from typing import NamedTuple

from penstock.errors import ShapeError

HOUR = 3600.0
LARGEST_EXPONENT = 600.0
"""Above this no checkpoint is ever reached: the numbers do not fit into a float."""


class Failures(NamedTuple):
    """How often a training stops, and what that takes."""

    devices: int
    mtbf_hours: float
    """Hours until one device fails, on average; it fails alone."""
    checkpoint_seconds: float
    """How long training stands still for a checkpoint."""
    restart_seconds: float = 0.0
    """From a failure until the first step after it."""

    @property
    def between(self) -> float:
        """Seconds between two failures of any device, on average."""
        return self.mtbf_hours * HOUR / self.devices


class Goodput(NamedTuple):
    """A checkpoint each so many steps, and what becomes of the time."""

    steps: int
    """Steps between two checkpoints."""
    progress: float
    checkpoints: float
    lost: float
    """The part that failures take: restarts, and work and checkpoints that are done again."""
    failures_per_day: float


def best_goodput(step_seconds: float, failures: Failures) -> Goodput:
    """The number of steps between checkpoints with which training makes the most progress."""
    _refuse(step_seconds, failures)
    best = best_interval(failures) / step_seconds
    tried = {max(1, floor(best)), floor(best) + 1}
    return max(
        (goodput(step_seconds, steps, failures) for steps in tried), key=lambda each: each.progress
    )


def goodput(step_seconds: float, steps: int, failures: Failures) -> Goodput:
    """What becomes of the time with a checkpoint each so many steps."""
    _refuse(step_seconds, failures)
    mean, checkpoint = failures.between, failures.checkpoint_seconds
    work = steps * step_seconds
    if (work + checkpoint + failures.restart_seconds) / mean > LARGEST_EXPONENT:
        return Goodput(steps, 0.0, 0.0, 1.0, 24 * HOUR / mean)
    spent = mean * exp(failures.restart_seconds / mean) * expm1((work + checkpoint) / mean)
    progress, saving = work / spent, checkpoint / spent
    return Goodput(steps, progress, saving, 1 - progress - saving, 24 * HOUR / mean)


def best_interval(failures: Failures) -> float:
    """Seconds of work between two checkpoints with which training makes the most progress."""
    ratio = failures.checkpoint_seconds / failures.between
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        # What is left of zero here falls as the work grows, and is zero at the best.
        if log1p(-middle) + middle + ratio > 0:
            low = middle
        else:
            high = middle
    return low * failures.between


def _refuse(step_seconds: float, failures: Failures) -> None:
    given = {"a step": step_seconds, "the mean time between failures": failures.mtbf_hours}
    for what, value in given.items():
        if not 0 < value < inf:
            raise ShapeError(f"{what} takes {value:g}", hint="give a finite time above 0")
    waits = {"checkpoint": failures.checkpoint_seconds, "restart": failures.restart_seconds}
    for what, value in waits.items():
        if not 0 <= value < inf:
            raise ShapeError(f"a {what} takes {value:g} s", hint="give a finite time of 0 or more")

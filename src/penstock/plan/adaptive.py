"""Choosing the group again and again, while the network between devices changes.

In a shared cluster the network is fast at one time and slow at another. A group that hides slow
transfers is waste while they are fast, because its microbatches are small. So a run looks at what
transfers take, predicts the step of every candidate by simulating it with that, and changes to a
better one between two steps: it computes the same batch either way. Here such a run is simulated.
Source: arXiv:2303.01675; the loop is a reconstruction.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.plan.grouping import Grouping
from penstock.sim import simulate
from penstock.transform import group

FIFTIETH = Fraction(1, 50)
"""The share of a step that a change should save."""

Network = Callable[[Fraction, int], Fraction]
"""What a transfer of a microbatch of so many samples takes at some time."""


@dataclass(frozen=True)
class AdaptiveJob:
    """What is run: an order for any number of microbatches, their times, and the choice."""

    base: Callable[[int], Schedule]
    """The schedule for a number of microbatches; a group takes the place of each."""
    times: Callable[[int], Mapping[str, Fraction]]
    """Times of F, I and W of a microbatch of so many samples."""
    candidates: tuple[Grouping, ...]

    @cached_property
    def schedules(self) -> dict[Grouping, Schedule]:
        """Every candidate made once, ahead of the run."""
        return {way: schedule_of_grouping(self.base, way) for way in self.candidates}

    @cached_property
    def _known(self) -> dict[tuple[Grouping, Fraction], Fraction]:
        return {}

    def time(self, way: Grouping, transfer: Fraction) -> Fraction:
        """A step of a candidate while transfers take that long."""
        key = (way, transfer)
        if key not in self._known:
            cost = UnitCost(times=self.times(way.size), hop=transfer)
            self._known[key] = simulate(self.schedules[way], cost).makespan
        return self._known[key]

    def predicted(self, network: Network, at: Fraction) -> dict[Grouping, Fraction]:
        """What a step of each candidate takes if the network stays as it is at some time."""
        return {way: self.time(way, network(at, way.size)) for way in self.candidates}


def schedule_of_grouping(base: Callable[[int], Schedule], way: Grouping) -> Schedule:
    """A schedule whose microbatches are groups; of 1 it is the schedule itself."""
    schedule = base(-(-way.microbatches // way.group))
    if way.group == 1:
        return schedule
    return group(schedule, way.group, microbatches=way.microbatches)


class AdaptiveStep(NamedTuple):
    """One step of a run."""

    way: Grouping
    start: Fraction
    time: Fraction


def run_adaptively(
    job: AdaptiveJob,
    network: Network,
    *,
    steps: int,
    interval: int = 1,
    threshold: Fraction = FIFTIETH,
) -> list[AdaptiveStep]:
    """Steps of a run that looks at the network every `interval` steps.

    It sees what transfers took in the step before, and changes its group if that promises to save
    more than `threshold` of a step. The network is taken to stay as it is during a step.
    """
    if steps < 1 or interval < 1:
        raise ShapeError(
            f"a run of {steps} step(s) that looks every {interval} does nothing",
            hint="give 1 or more of both",
        )
    seen = start = Fraction(0)
    way = best_way(job.predicted(network, seen))
    done: list[AdaptiveStep] = []
    for number in range(steps):
        if number % interval == 0:
            way = reconsider(job.predicted(network, seen), way, threshold)
        step = AdaptiveStep(way, start, job.time(way, network(start, way.size)))
        done.append(step)
        seen, start = start, start + step.time
    return done


def best_way(predicted: Mapping[Grouping, Fraction]) -> Grouping:
    """The candidate with the shortest step; of equal ones the smallest group."""
    return min(predicted, key=lambda way: (predicted[way], way.group))


def reconsider(
    predicted: Mapping[Grouping, Fraction], current: Grouping, threshold: Fraction
) -> Grouping:
    """The fastest candidate if it is so much faster that changing to it is worth it."""
    best = best_way(predicted)
    saved = predicted[current] - predicted[best]
    return best if saved > threshold * predicted[current] else current


def choose_group(
    predicted: Mapping[Grouping, Fraction], current: Grouping, threshold: Fraction
) -> Grouping:
    """As `reconsider`, but where no candidate is so much faster, a smaller group that costs at most
    half of that is taken: it holds less. A change back needs the whole, so that a choice stays
    while times vary by less.

    >>> one, two, four = (Grouping(k, 1, 8) for k in (1, 2, 4))
    >>> choose_group({one: Fraction(100), two: Fraction(90), four: Fraction(90)}, one, FIFTIETH)
    Grouping(group=2, size=1, microbatches=8)
    >>> choose_group({one: Fraction(200), two: Fraction(199), four: Fraction(199)}, four, FIFTIETH)
    Grouping(group=1, size=1, microbatches=8)
    """
    best = reconsider(predicted, current, threshold)
    least = predicted[best] * (1 + threshold / 2)
    smaller = [way for way in predicted if way.group < best.group and predicted[way] <= least]
    return min(smaller, key=lambda way: (way.group, predicted[way]), default=best)


def finish_time(steps: list[AdaptiveStep]) -> Fraction:
    """When a run has ended."""
    return steps[-1].start + steps[-1].time

"""Best-first: candidates are simulated in the order of their bounds, as long as one can be better.

The best plan of each kind is wanted, for some kinds. A candidate is left out where its bound says
that it needs more memory than there is, or that it is not faster than the best plan of its own kind
or than the slowest that would be shown. So what is left out cannot be among the answers.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.price import Estimate
from penstock.planner.candidates import Candidates
from penstock.planner.divisions import Kind
from penstock.planner.processes import PlanProcesses
from penstock.planner.simulations import (
    Begun,
    CandidateOutcome,
    NoRoom,
    Refused,
    RuledOut,
    Simulations,
    Slower,
)

WORTH = 1e-3
"""Share of a step by which a candidate must be faster to be simulated."""
SIMULATED_AT_ONCE = 16
"""Candidates that are simulated between two looks at what is still worth it. It does not depend on
the number of processes, so that the answer does not."""
OF_ONE_KIND = 4
"""How many of them are of one kind: the best of several kinds is wanted."""
RULED_OUT_FOR_ONE = 10
"""Candidates that take about as long to rule out by a closer bound as one to simulate."""
ALIKE_AT_ONCE = 48
"""Candidates that are simulated with them because they have the same schedules: making and proving
one takes longer than simulating several with it."""
LOOKED_AHEAD = 20_000
"""Candidates among which these are chosen."""
UNDER_WAY = 1
"""How many such choices are made before what came of the first is known: a process that is done has
something to do while another is not. It does not depend on the number of processes either."""
Told = Callable[[int, float | None], None]
"""How many have been simulated, and the best step so far."""


@dataclass
class SearchResult:
    """What a search has seen."""

    candidates: Candidates
    wanted: int
    """Kinds of plans."""
    best: dict[Kind, tuple[int, Estimate]] = field(default_factory=dict)
    """The best plan of each kind that fits, with its number."""
    lacking: list[tuple[int, Estimate]] = field(default_factory=list)
    """Those that were simulated and do not fit."""
    simulated: int = 0
    ruled_out: int = 0
    """By a closer bound, when their turn came."""
    no_room: list[int] = field(default_factory=list)
    """Those of them for which a GPU or a host has no room."""
    refused: Counter[str] = field(default_factory=Counter)
    open: int = 0
    """Candidates that could be better and were not simulated, because there were too many."""
    open_seconds: float = np.inf
    """The smallest bound of these."""

    @property
    def looked_at(self) -> int:
        """How many were simulated, or took as long to rule out."""
        return self.simulated + self.ruled_out // RULED_OUT_FOR_ONE

    @property
    def plans(self) -> list[Estimate]:
        """The best of each kind, the fastest first."""
        each = sorted(self.best.values(), key=lambda item: (item[1].seconds, item[0]))
        return [found for _, found in each[: self.wanted]]

    @cached_property
    def longer(self) -> NDArray[np.float64]:
        """How many times its bound the best of each sort took, of those that were simulated."""
        return np.ones(int(self.candidates.sort.max(initial=-1)) + 1)

    def learn(self, number: int, seconds: float) -> None:
        """Keep what a candidate took."""
        sort, ratio = self.candidates.sort[number], seconds / self.candidates.likely[number]
        known = self.longer[sort]
        self.longer[sort] = ratio if known == 1 else min(known, ratio)

    @property
    def limits(self) -> NDArray[np.float64]:
        """Seconds that a candidate of each kind must stay below to matter."""
        plans, kinds = self.plans, self.candidates.kinds
        slowest = plans[-1].seconds if len(plans) == self.wanted else np.inf
        own = (self.best[kind][1].seconds if kind in self.best else np.inf for kind in kinds)
        return (1 - WORTH) * np.minimum([*own], slowest)


def search_plans(
    candidates: Candidates,
    wanted: int,
    most: int,
    told: Told,
    simulations: Simulations | None = None,
) -> SearchResult:
    """The best plans of some kinds; without processes, everything is simulated here."""
    simulations = simulations or Simulations(PlanProcesses(candidates.problem))
    found, begun = SearchResult(candidates, wanted), deque[Begun]()
    left = np.flatnonzero(candidates.lacks == 0)
    while True:
        limits = found.limits
        below = limits[candidates.kind_number(left)]
        left = left[candidates.seconds[left] < below]  # limits only fall
        ahead = first_by_promise(candidates, left, found.longer)
        room = most - found.looked_at - sum(len(each.numbers) for each in begun)
        chosen = ahead[_chosen(candidates, ahead, room)]
        if len(chosen):
            below = limits[candidates.kind_number(chosen)]
            begun.append(simulations.begin(candidates, chosen.tolist(), below.tolist()))
            left = np.setdiff1d(left, chosen, assume_unique=True)
        if not begun:
            break
        if len(begun) > UNDER_WAY or not len(chosen):
            _keep_all(found, begun.popleft())
            told(found.simulated, min((e.seconds for _, e in found.best.values()), default=None))
    found.open = len(left)
    found.open_seconds = float(candidates.seconds[left].min(initial=np.inf))
    return found


def _chosen(candidates: Candidates, ahead: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    """Places of those that are simulated next, as far as there is room."""
    if not len(ahead) or room <= 0:
        return np.zeros(0, np.int64)
    chosen = _first_of_kinds(candidates.kind_number(ahead), min(SIMULATED_AT_ONCE, room))
    return _with_alike(candidates.schedule[ahead], chosen, room)


def _first_of_kinds(kinds: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The first so many places, and not more than a few of one kind while there are others."""
    order = np.argsort(kinds, kind="stable")
    starts = np.flatnonzero(np.diff(kinds[order], prepend=-1))
    turn = np.empty(len(kinds), np.int64)
    turn[order] = np.arange(len(kinds)) - np.repeat(starts, np.diff(starts, append=len(kinds)))
    return np.sort(np.argsort(turn // OF_ONE_KIND, kind="stable")[:count])


def _with_alike(
    schedules: NDArray[np.int64], chosen: NDArray[np.int64], room: int
) -> NDArray[np.int64]:
    """The chosen places, and some of those that have their schedules, in the order of promise."""
    alike = np.isin(schedules, schedules[chosen])
    alike[chosen] = False
    more = np.flatnonzero(alike)[: min(ALIKE_AT_ONCE, room - len(chosen))]
    return np.sort(np.concatenate([chosen, more]))


def _keep_all(found: SearchResult, begun: Begun) -> None:
    """Keep what comes out, in the order of the search."""
    for number, outcome in zip(begun.numbers, begun.outcomes()):
        _keep(found, number, outcome)


def _keep(found: SearchResult, number: int, outcome: CandidateOutcome) -> None:
    if isinstance(outcome, Refused):
        found.refused[outcome.message] += 1
        return
    if isinstance(outcome, NoRoom):
        found.ruled_out += 1
        found.no_room.append(number)
        return
    found.learn(number, outcome.seconds)
    if isinstance(outcome, RuledOut):
        found.ruled_out += 1
        return
    found.simulated += 1
    if isinstance(outcome, Slower):
        return
    if not outcome.fits:
        found.lacking.append((number, outcome))
        return
    kind = found.candidates.kind(number)
    if kind not in found.best or outcome.seconds < found.best[kind][1].seconds:
        found.best[kind] = (number, outcome)


def first_by_promise(
    candidates: Candidates, numbers: NDArray[np.int64], longer: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Candidates among which the next ones are chosen, in their order: by their bounds, times what
    those of their sort took longer, and where these differ by next to nothing, those with fewer
    extras first, and then those that need less memory."""
    promise = candidates.likely[numbers] * longer[candidates.sort[numbers]]
    steps = np.floor(np.log(promise) / WORTH)
    if len(numbers) > LOOKED_AHEAD:  # sorting all of them takes longer than finding these
        near = steps <= np.partition(steps, LOOKED_AHEAD)[LOOKED_AHEAD]
        numbers, steps = numbers[near], steps[near]
    extras = candidates.extras[candidates.group[numbers]]
    return numbers[np.lexsort((candidates.bytes[numbers], extras, steps))][:LOOKED_AHEAD]


def least_seconds(candidates: Candidates, kind: Kind) -> float:
    """The smallest bound of a kind, of candidates whose bounds have room."""
    groups = [at for at, group in enumerate(candidates.groups) if group.division.kind == kind]
    fits = candidates.lacks == 0
    return float(candidates.seconds[np.isin(candidates.group, groups) & fits].min(initial=np.inf))

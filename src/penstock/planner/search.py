"""Best-first: candidates are simulated in the order of their bounds, as long as one can be better.

The best plan of each kind is wanted, for some kinds. A candidate is left out where its bound says
that it needs more memory than there is, or that it is not faster than the best plan of its own kind
or than the slowest that would be shown. So what is left out cannot be among the answers.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.core.collector import collector_resting
from penstock.core.kernel import compile_small_work
from penstock.errors import PenstockError
from penstock.estimate.price import Estimate, estimate_step
from penstock.planner.candidates import Candidates, Kind

WORTH = 1e-3
"""Share of a step by which a candidate must be faster to be simulated."""
LOOSE = 25
"""Candidates that copy activations or lend attention that are simulated, after all others: their
schedules take longest to make, and their bounds say little."""
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
    refused: Counter[str] = field(default_factory=Counter)
    open: int = 0
    """Candidates that could be better and were not simulated, because there were too many."""
    open_seconds: float = np.inf
    """The smallest bound of these."""

    @property
    def plans(self) -> list[Estimate]:
        """The best of each kind, the fastest first."""
        each = sorted(self.best.values(), key=lambda item: (item[1].seconds, item[0]))
        return [found for _, found in each[: self.wanted]]

    def limit(self, kind: Kind) -> float:
        """Seconds that a candidate of a kind must stay below to matter."""
        own = self.best[kind][1].seconds if kind in self.best else np.inf
        return (1 - WORTH) * min(own, self.slowest_shown)

    @property
    def slowest_shown(self) -> float:
        plans = self.plans
        return plans[-1].seconds if len(plans) == self.wanted else np.inf


def search_plans(candidates: Candidates, wanted: int, most: int, told: Told) -> SearchResult:
    """The best plans of some kinds."""
    found = SearchResult(candidates, wanted)
    room = candidates.problem.cluster.gpu.memory
    order = order_by_promise(candidates, np.flatnonzero(candidates.bytes <= room))
    loose = candidates.loose[order]
    with compile_small_work(), collector_resting():
        _in_order(found, order[~loose], most, told)
        _in_order(found, order[loose], min(most, found.simulated + LOOSE), told)
    return found


def _in_order(found: SearchResult, order: NDArray[np.int64], most: int, told: Told) -> None:
    """Simulate what can be better, until so many are simulated in all."""
    bounds = found.candidates.seconds[order]
    for at, number in enumerate(order.tolist()):
        if bounds[at] >= found.limit(found.candidates.kind(number)):
            continue
        if found.simulated >= most:
            left = bounds[at:][bounds[at:] < (1 - WORTH) * found.slowest_shown]
            found.open += len(left)
            found.open_seconds = min([found.open_seconds, *left.tolist()])
            return
        _simulate(found, number)
        told(found.simulated, min((e.seconds for _, e in found.best.values()), default=None))


def order_by_promise(candidates: Candidates, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Candidates in the order in which they are looked at: by their bounds, and where these differ
    by next to nothing, those with fewer extras first, and then those that need less memory."""
    steps = np.floor(np.log(candidates.likely[numbers]) / WORTH)
    extras = candidates.extras[candidates.group[numbers]]
    return numbers[np.lexsort((candidates.bytes[numbers], extras, steps))]


def least_seconds(candidates: Candidates, kind: Kind) -> float:
    """The smallest bound of a kind, of candidates whose bounds have room."""
    groups = [at for at, group in enumerate(candidates.groups) if group.division.kind == kind]
    fits = candidates.bytes <= candidates.problem.cluster.gpu.memory
    return float(candidates.seconds[np.isin(candidates.group, groups) & fits].min(initial=np.inf))


def _simulate(found: SearchResult, number: int) -> None:
    try:
        estimate = estimate_step(found.candidates.layout(number))
    except PenstockError as error:
        found.refused[error.message] += 1
        return
    found.simulated += 1
    if not estimate.fits:
        found.lacking.append((number, estimate))
        return
    kind = found.candidates.kind(number)
    if kind not in found.best or estimate.seconds < found.best[kind][1].seconds:
        found.best[kind] = (number, estimate)

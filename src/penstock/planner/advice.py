"""What a search says beside its plans: what nearly fits, and what would gain most."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from penstock.arch.layers.record import wide_bytes
from penstock.cluster.gpu import ATTENTION_KERNELS
from penstock.errors import PenstockError
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.price import Estimate, estimate, estimate_step
from penstock.planner.candidates import Kind
from penstock.planner.problem import PlanProblem
from penstock.planner.search import SearchResult, order_by_promise

MOST_MEMORY = 2.5
"""Times the memory of a GPU up to which more of it is an answer: a B200 has 2.25 times that of an
H100."""
LOOKED_AT = 12
"""Candidates that are simulated although their bounds say that they need too much."""


@dataclass(frozen=True)
class Relaxed:
    """A constraint, and what a step would gain without it."""

    name: str
    text: str
    gain: float
    """Share by which more tokens are trained in a second."""


@dataclass(frozen=True)
class Plans:
    """The answer of a search."""

    found: SearchResult
    plans: tuple[Estimate, ...]
    nearest: Estimate | None
    """Of faster plans that do not fit the one that lacks fewest bytes; without any plan the one
    that needs least."""
    relaxed: tuple[Relaxed, ...]
    """What gains most first."""


def needs(found: Estimate) -> int:
    """Bytes of the GPU that needs most."""
    return max(each.total for each in found.memory)


def lacks(found: Estimate) -> int:
    return needs(found) - found.layout.cluster.gpu.memory


def state_bytes(problem: PlanProblem) -> int:
    """Weights, gradients, main weights and moments of all GPUs together, each held once."""
    narrow = problem.element_bytes
    wide = wide_bytes(narrow)
    return problem.model.parameters * (narrow * (narrow < wide) + 4 * wide)


def advise(found: SearchResult) -> Plans:
    """The plans of a search with all that is said about them."""
    plans = tuple(estimate(plan.layout) for plan in found.plans)
    if not plans:
        leanest = min(_without_room(found), key=needs, default=None)
        return Plans(found, (), leanest, ())
    faster = [each for each in _faster(found, plans[0]) if not each.fits]
    nearest = min(faster, key=lacks, default=None)
    return Plans(found, plans, nearest, tuple(_relaxed(plans[0], faster)))


def _faster(found: SearchResult, best: Estimate) -> Iterable[Estimate]:
    """Plans that do not fit, of those that were simulated and of those that need little more, or
    could be fastest."""
    tight, candidates = found.candidates.problem.cluster.gpu.memory, found.candidates
    numbers = np.flatnonzero((candidates.bytes > tight) & (candidates.seconds < best.seconds))
    leanest = numbers[np.argsort(candidates.bytes[numbers], kind="stable")]
    fastest = order_by_promise(candidates, numbers)
    more = [*leanest[:LOOKED_AT].tolist(), *fastest[:LOOKED_AT].tolist()]
    each = [*(estimate for _, estimate in found.lacking), *_estimates(found, more)]
    return (plan for plan in each if plan.seconds < best.seconds)


def _without_room(found: SearchResult) -> list[Estimate]:
    """The candidate of each kind that needs least, by bounds that are near."""
    candidates = found.candidates
    spread = np.array([group.variant.vocabulary for group in candidates.groups], np.bool_)
    numbers = np.flatnonzero(~candidates.loose & ~spread[candidates.group])
    leanest: dict[Kind, int] = {}
    for number in numbers[np.argsort(candidates.bytes[numbers], kind="stable")].tolist():
        leanest.setdefault(candidates.kind(number), number)
        if len(leanest) == LOOKED_AT:
            break
    each = _estimates(found, [*leanest.values()])
    return [*(estimate for _, estimate in found.lacking), *each]


def _estimates(found: SearchResult, numbers: list[int]) -> list[Estimate]:
    each = []
    for number in dict.fromkeys(numbers):
        try:
            each.append(estimate_step(found.candidates.layout(number)))
        except PenstockError:  # what cannot be made is no candidate
            continue
    return each


def _relaxed(best: Estimate, faster: list[Estimate]) -> list[Relaxed]:
    found = [*_more_memory(best, faster), *_larger_batch(best), *_faster_links(best)]
    found += _other_kernels(best)
    return sorted((each for each in found if each.gain > 0), key=lambda each: -each.gain)


def _more_memory(best: Estimate, faster: list[Estimate]) -> list[Relaxed]:
    room = MOST_MEMORY * best.layout.cluster.gpu.memory
    possible = [each for each in faster if needs(each) <= room]
    if not possible:
        return []
    fastest = min(possible, key=lambda each: each.seconds)
    room = needs(fastest) / 2**30
    text = f"GPUs with {room:.0f} GiB would take {fastest.seconds:.3f} s for a step"
    return [Relaxed("memory", text, best.seconds / fastest.seconds - 1)]


def _larger_batch(best: Estimate) -> list[Relaxed]:
    layout: TrainingLayout = best.layout
    try:
        twice = estimate_step(replace(layout, batch_tokens=2 * layout.batch_tokens))
    except PenstockError:  # too many ops
        return []
    text = f"a batch of {2 * layout.batch_tokens:,} tokens would take {twice.seconds:.3f} s"
    return [Relaxed("batch", text, twice.tokens_per_second / best.tokens_per_second - 1)]


def _other_kernels(best: Estimate) -> list[Relaxed]:
    """The same plan with a faster kernel of attention, where the machine was not profiled."""
    layout, found = best.layout, []
    if layout.cluster.gpu.measured is not None:
        return []
    for kernel in ATTENTION_KERNELS:
        with suppress(PenstockError):
            other = estimate_step(replace(layout, attention=kernel))
            text = f"--attention {kernel} would take {other.seconds:.3f} s with the first plan"
            found.append(Relaxed("attention", text, best.seconds / other.seconds - 1))
    return sorted(found, key=lambda each: -each.gain)[:1]


_LINKS = {
    "tensor": "links between ranks that share matrices",
    "sequence": "links between ranks that share tokens",
    "stages": "links between stages",
    "copies": "links between copies of the weights",
}


def _faster_links(best: Estimate) -> list[Relaxed]:
    """At most, by the kind of communication that is waited for longest."""
    kind, seconds = max(best.exposed.items(), key=lambda item: item[1])
    left = best.seconds - seconds
    text = f"{_LINKS[kind]} that take no time would leave {left:.3f} s of a step"
    return [Relaxed(kind, text, best.seconds / left - 1)]

"""What a search says beside its plans: what nearly fits, and what would gain most."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from penstock.arch.layers.record import wide_bytes
from penstock.cluster.gpu import ATTENTION_KERNELS
from penstock.errors import ShapeError
from penstock.estimate.host_room import SHARE_FOR_STEP, room_on_host
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.price import Estimate
from penstock.planner.divisions import Kind
from penstock.planner.problem import PlanProblem
from penstock.planner.processes import PlanProcesses
from penstock.planner.search import SearchResult, first_by_promise
from penstock.planner.simulations import Simulations

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
    """Of faster plans that do not fit, or of all where none does, the one that lacks fewest
    bytes."""
    relaxed: tuple[Relaxed, ...]
    """What gains most first."""


def needs(found: Estimate) -> int:
    """Bytes of the GPU that needs most."""
    return max(each.total for each in found.memory)


def lacks(found: Estimate) -> int:
    """Bytes that a GPU and a host have too few, together."""
    return found.lacks + found.host_lacks


def state_bytes(problem: PlanProblem) -> int:
    """Weights, gradients, main weights and moments of all GPUs together, each held once."""
    narrow = problem.element_bytes
    wide = wide_bytes(narrow)
    model = problem.model
    trained, frozen = model.trained_parameters, model.parameters - model.trained_parameters
    return trained * (narrow * (narrow < wide) + 4 * wide) + frozen * narrow


def advise(found: SearchResult, simulations: Simulations | None = None) -> Plans:
    """The plans of a search with all that is said about them."""
    simulations = simulations or Simulations(PlanProcesses(found.candidates.problem))
    shown, leanest = found.plans, None
    if not shown:
        lean = _without_room(found, simulations)
        shown = _with_room(found, lean)
        leanest = min(lean, key=lacks, default=None)
    if not shown:
        return Plans(found, (), leanest, ())
    plans = tuple(simulations.explained([plan.layout for plan in shown]))
    faster = [each for each in _faster(found, plans[0], simulations) if not each.fits]
    nearest = min(faster, key=lacks, default=None)
    return Plans(found, plans, nearest, tuple(_relaxed(plans[0], faster, simulations)))


def _faster(found: SearchResult, best: Estimate, simulations: Simulations) -> Iterable[Estimate]:
    """Plans that do not fit, of those that were simulated and of those that need little more, or
    could be fastest."""
    candidates = found.candidates
    numbers = np.flatnonzero((candidates.lacks > 0) & (candidates.seconds < best.seconds))
    leanest = numbers[np.argsort(candidates.lacks[numbers], kind="stable")]
    fastest = first_by_promise(candidates, numbers, found.longer)
    no_room = first_by_promise(candidates, np.array(found.no_room, np.int64), found.longer)
    more = [*leanest[:LOOKED_AT], *fastest[:LOOKED_AT], *no_room[:LOOKED_AT]]
    layouts = [candidates.layout(number) for number in dict.fromkeys(map(int, more))]
    each = [*(plan for _, plan in found.lacking), *simulations.estimates(layouts)]
    return (plan for plan in each if plan.seconds < best.seconds)


def _without_room(found: SearchResult, simulations: Simulations) -> list[Estimate]:
    """The candidate of each kind that needs least, by bounds that are near."""
    candidates = found.candidates
    near = [
        not (each.variant.vocabulary or each.variant.offload != "none")
        for each in candidates.groups
    ]
    numbers = np.flatnonzero(np.array(near, np.bool_)[candidates.group])
    leanest: dict[Kind, int] = {}
    for number in numbers[np.argsort(candidates.bytes[numbers], kind="stable")].tolist():
        leanest.setdefault(candidates.kind(number), number)
        if len(leanest) == LOOKED_AT:
            break
    each = simulations.estimates([*map(candidates.layout, leanest.values())])
    return [*(plan for _, plan in found.lacking), *each]


def _with_room(found: SearchResult, lean: Iterable[Estimate]) -> list[Estimate]:
    """Of the leanest those that fit: a search of few simulations may not have come to them."""
    fitting = sorted((each for each in lean if each.fits), key=lambda each: each.seconds)
    return fitting[: found.wanted]


def _relaxed(best: Estimate, faster: list[Estimate], simulations: Simulations) -> list[Relaxed]:
    batch = _larger_batch(best, simulations)
    found = [*_more_memory(best, faster), *_more_host(best, faster)]
    found += [*batch, *_faster_links(best)]
    found += _other_kernels(best, simulations)
    return sorted((each for each in found if each.gain > 0), key=lambda each: -each.gain)


def _more_memory(best: Estimate, faster: list[Estimate]) -> list[Relaxed]:
    room = MOST_MEMORY * best.layout.cluster.gpu.memory
    possible = [each for each in faster if needs(each) <= room and not each.host_lacks]
    if not possible:
        return []
    fastest = min(possible, key=lambda each: each.seconds)
    room = needs(fastest) / 2**30
    text = f"GPUs with {room:.0f} GiB would take {fastest.seconds:.3f} s for a step"
    return [Relaxed("memory", text, best.seconds / fastest.seconds - 1)]


def _more_host(best: Estimate, faster: list[Estimate]) -> list[Relaxed]:
    """Plans whose activations would find room on larger hosts."""
    possible = [
        each
        for each in faster
        if not each.lacks and each.host <= MOST_MEMORY * room_on_host(each.layout.cluster)
    ]
    if not possible:
        return []
    fastest = min(possible, key=lambda each: each.seconds)
    room = fastest.host / SHARE_FOR_STEP / 2**30
    text = f"hosts with {room:,.0f} GiB would take {fastest.seconds:.3f} s for a step"
    return [Relaxed("host", text, best.seconds / fastest.seconds - 1)]


def _larger_batch(best: Estimate, simulations: Simulations) -> list[Relaxed]:
    layout = best.layout
    try:
        twice = simulations.estimates([replace(layout, batch_tokens=2 * layout.batch_tokens)])
    except ShapeError:  # too many ops
        return []
    if not twice:
        return []
    text = f"a batch of {2 * layout.batch_tokens:,} tokens would take {twice[0].seconds:.3f} s"
    return [Relaxed("batch", text, twice[0].tokens_per_second / best.tokens_per_second - 1)]


def _other_kernels(best: Estimate, simulations: Simulations) -> list[Relaxed]:
    """The same plan with a faster kernel of attention, where the machine was not profiled."""
    layout = best.layout
    if layout.cluster.gpu.measured is not None:
        return []
    others = simulations.estimates([*_with_kernels(layout)])
    found = []
    for other in others:
        kernel = other.layout.attention
        text = f"--attention {kernel} would take {other.seconds:.3f} s with the first plan"
        found.append(Relaxed("attention", text, best.seconds / other.seconds - 1))
    return sorted(found, key=lambda each: -each.gain)[:1]


def _with_kernels(layout: TrainingLayout) -> Iterator[TrainingLayout]:
    """The layout with each kernel that computes in its precision."""
    for kernel in ATTENTION_KERNELS:
        with suppress(ShapeError):
            yield replace(layout, attention=kernel)


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

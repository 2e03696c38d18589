"""Joint search: how the layers are cut, where the stages live, and in which order devices work.

Published schedules fix two of these decisions and tune at most one. On a model whose layers differ
that can make a step slower: a cut that is perfectly even per device may be worse than an uneven one
under another order. So the three are searched together, and every candidate is priced by its order:

    seeds        named placements with even cuts, and orders that are known already
    neighbours   a layer moves to another stage, two stages exchange devices or become one
    evaluate     list scheduling under a few policies, or the order of the neighbour
    keep         the best few, first as they are listed, then polished op by op

The effort is counted in ops that were placed or replayed, not in seconds, so that a request has the
same answer on every machine. Source: AdaPtis, arXiv:2509.23722; the procedure is ours.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product
from random import Random
from time import process_time
from typing import NamedTuple, TypeVar

from penstock.arch.layer_split import even_split
from penstock.schedules.generators.placements import Placement
from penstock.search.joint.list_scheduler import NEVER, Listed, list_schedule, urgency
from penstock.search.joint.moves import (
    CutAndHomes,
    Split,
    balance,
    carry_layers,
    evenest,
    exchange_homes,
    families,
    join_stages,
    shift_boundaries,
)
from penstock.search.joint.pipeline import Order, Pipeline, Scale
from penstock.search.joint.polish import TRIED, fits, polish, replay

Item = TypeVar("Item")

LEADS = (8.0, 1.0, 0.0, -1.0, -2.0)
PATIENCES = (0.0, 0.5, 1.0)
LATE = 50.0
"""Periods by which weight gradients go behind: they fill what is idle."""
WIDTH = 5
"""Candidates kept beside each other."""
NEIGHBOURS = 40
"""Neighbours looked at for each candidate that is kept."""
HEIRS = 8
"""Neighbours of each candidate that inherit its polished order."""
POLISH_ROUNDS = 200
"""Exchanges of one polish."""
LISTING = 6
"""Ops that can be replayed while one is placed."""


@dataclass(frozen=True)
class Problem:
    """What is searched: layers in whole numbers on so many devices, within a memory."""

    scale: Scale
    """Of one slice."""
    devices: int
    microbatches: int
    chunks: int
    """Most stages per device."""
    cap: int
    slices: int = 1
    """Of each sequence, all of equal cost."""

    @property
    def units(self) -> int:
        """Slices of all sequences."""
        return self.microbatches * self.slices

    def pipeline(self, layout: CutAndHomes, letters: str) -> Pipeline:
        split = Pipeline.of(self.scale, *layout, self.microbatches, self.cap, self.slices)
        return split.fused if letters == "FB" else split


class Candidate(NamedTuple):
    """A layout with the best order known for it."""

    layout: CutAndHomes
    pipeline: Pipeline
    listed: Listed

    @property
    def standing(self) -> tuple[int, int]:
        """Makespan; of equal ones, fewer transfers are better."""
        homes = self.layout.placement
        return self.listed.makespan, sum(a != b for a, b in pairwise(homes))


class Known(NamedTuple):
    """An order that somebody else has worked out, for stages on devices."""

    placement: Placement
    letters: str
    order: Order
    split: Split | None = None
    """The cut it was worked out for, if it was for one."""


@dataclass
class Effort:
    """What a search may spend: ops to place or replay, and a moment at which it has to end.

    The moment is one of the processor's time, so that a busy machine does not change the answer.
    """

    ops: int
    until: float = float("inf")
    spent: int = 0

    def pay(self, ops: int) -> None:
        self.spent += ops

    @property
    def late(self) -> bool:
        return process_time() >= self.until

    @property
    def left(self) -> bool:
        return self.spent < self.ops and not self.late


def search(problem: Problem, effort: Effort, known: Iterable[Known] = ()) -> Candidate | None:
    """The best candidate found, or None where not even one microbatch at a time fits."""
    listing, chance = Effort(effort.ops // 3, effort.until), Random(0)
    kept = keep(seeds(problem, listing, known))
    while listing.left:
        better = keep([*kept, *around(problem, kept, listing, chance)])
        if better[:1] == kept[:1]:
            break
        kept = better
    effort.pay(listing.spent)
    kept = keep([c if effort.late else polish_candidate(c, effort, chance) for c in kept])
    while effort.left and kept:
        kept = keep([*kept, *refine(problem, kept, effort, chance)])
    return kept[0] if kept else None


def keep(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The best few, with different layouts."""
    best: dict[CutAndHomes, Candidate] = {}
    for candidate in sorted(candidates, key=lambda found: found.standing):
        best.setdefault(candidate.layout, candidate)
    return [*islice(best.values(), WIDTH)]


def seeds(problem: Problem, effort: Effort, known: Iterable[Known]) -> Iterator[Candidate]:
    """Named placements, and placements with a known order, each with a few cuts.

    Known orders are priced however late it is, and named placements until one of them fits.
    """
    fitting = False
    for placement in families(problem.devices, problem.chunks):
        for layout, letters in product(cuts(problem, placement), ("FIW", "FB")):
            if not (fitting and effort.late):
                for candidate in evaluate(problem, layout, letters, effort):
                    fitting = True
                    yield candidate
    for placement, letters, order, split in known:
        own = [] if split is None else [CutAndHomes(split, placement)]
        for layout in own or cuts(problem, placement):
            yield from inherit(problem, layout, letters, order, effort)


def cuts(problem: Problem, placement: Placement) -> list[CutAndHomes]:
    """Cuts to start from: even in work of devices or of stages, in memory, in numbers of layers."""
    layers, stages = problem.scale.layers, len(placement)
    if stages > len(layers):
        return []
    work = layers[:, :3].sum(axis=1)
    found = (
        balance(work, placement),
        evenest(work, stages),
        evenest(layers[:, 3], stages),
        even_split(len(layers), stages),
    )
    return [CutAndHomes(split, placement) for split in dict.fromkeys(found)]


def neighbours(problem: Problem, layout: CutAndHomes) -> list[CutAndHomes]:
    """Layouts that differ in one decision."""
    far = max(1, len(problem.scale.layers) // (4 * problem.devices))
    splits = [*shift_boundaries(layout.split, far), *carry_layers(layout.split)]
    found = [CutAndHomes(split, layout.placement) for split in splits]
    found += [CutAndHomes(layout.split, homes) for homes in exchange_homes(layout.placement)]
    return found + [*join_stages(layout)]


def evaluate(
    problem: Problem, layout: CutAndHomes, letters: str, effort: Effort
) -> Iterator[Candidate]:
    """The layout with the best order of a few policies, if it fits into the memory at all."""
    pipeline = problem.pipeline(layout, letters)
    best: Listed | None = None
    for lead, patience in product(LEADS, PATIENCES):
        policy = urgency(pipeline, lead=lead, late=LATE, patience=patience)
        below = NEVER if best is None else best.makespan
        best = list_schedule(pipeline, policy, below) or best
        effort.pay(LISTING * pipeline.ops)
    if best is not None:
        yield Candidate(layout, pipeline, best)


def inherit(
    problem: Problem, layout: CutAndHomes, letters: str, order: Order, effort: Effort
) -> Iterator[Candidate]:
    """The layout with a given order, if the memory holds it."""
    pipeline = problem.pipeline(layout, letters)
    effort.pay(pipeline.ops)
    played = replay(pipeline, order)
    if fits(pipeline, played):
        yield Candidate(layout, pipeline, Listed(order, played.makespan))


def around(
    problem: Problem, kept: list[Candidate], effort: Effort, chance: Random
) -> Iterator[Candidate]:
    """Some neighbours of each candidate, with orders listed anew."""
    for candidate in kept:
        for layout in _some(neighbours(problem, candidate.layout), NEIGHBOURS, chance):
            if not effort.left:
                return
            yield from evaluate(problem, layout, candidate.pipeline.letters, effort)


def refine(
    problem: Problem, kept: list[Candidate], effort: Effort, chance: Random
) -> Iterator[Candidate]:
    """Each candidate polished on, and some neighbours that inherit its order, polished."""
    for candidate in kept:
        yield polish_candidate(candidate, effort, chance)
        letters, order = candidate.pipeline.letters, candidate.listed.order
        splits = [*shift_boundaries(candidate.layout.split), *carry_layers(candidate.layout.split)]
        for split in _some(splits, HEIRS, chance):
            if not effort.left:
                return
            layout = CutAndHomes(split, candidate.layout.placement)
            for heir in inherit(problem, layout, letters, order, effort):
                yield polish_candidate(heir, effort, chance)


def polish_candidate(candidate: Candidate, effort: Effort, chance: Random) -> Candidate:
    """The candidate with a better order, if one is found."""
    listed = polish(candidate.pipeline, candidate.listed, POLISH_ROUNDS, chance.randrange(2**31))
    effort.pay(POLISH_ROUNDS * TRIED * candidate.pipeline.ops)
    return candidate._replace(listed=listed)


def _some(items: Sequence[Item], count: int, chance: Random) -> list[Item]:
    """At most so many of the items, at random."""
    return list(items) if len(items) <= count else chance.sample(items, count)

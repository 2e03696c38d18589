"""Seeded mistakes: every way in which a generator or a hand goes wrong, applied to real lanes.

A mutation has sites, the places where it can strike, and strikes at one of them. `touched` is the
work it displaced: when the mutant is wrong, a good explanation names some of it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Any

from .world import Place, Work

Lanes = Mapping[Place, Sequence[Work]]
Changed = dict[Place, list[Work]]
Site = tuple[Any, ...]


@dataclass(frozen=True)
class Mutant:
    """Lanes with one mistake in them."""

    kind: str
    site: Site
    lanes: Lanes
    touched: frozenset[Work]


@dataclass(frozen=True)
class Mutation:
    """A kind of mistake: where it can strike, and what it does there."""

    kind: str
    sites: Callable[[Lanes, Random], Iterator[Site]]
    strike: Callable[[Changed, Site], set[Work]]
    """Changes the lanes in place and returns the work it displaced."""

    def at(self, lanes: Lanes, site: Site) -> Mutant:
        changed = {place: list(lane) for place, lane in lanes.items()}
        touched = self.strike(changed, site)
        return Mutant(self.kind, site, changed, frozenset(touched))

    def sample(self, lanes: Lanes, count: int, random: Random) -> list[Mutant]:
        """`count` mutants at sites drawn without repetition, or all there are."""
        sites = sorted(set(self.sites(lanes, random)))
        chosen = sites if len(sites) <= count else random.sample(sites, count)
        return [self.at(lanes, site) for site in chosen]


def _every_work(lanes: Lanes, random: Random) -> Iterator[Site]:
    return ((place, index) for place, lane in lanes.items() for index in range(len(lane)))


def _neighbours(lanes: Lanes, random: Random) -> Iterator[Site]:
    return ((place, i, i + 1) for place, lane in lanes.items() for i in range(len(lane) - 1))


def _distant(lanes: Lanes, random: Random) -> Iterator[Site]:
    for place, lane in lanes.items():
        yield from ((place, i, j) for i, j in combinations(range(len(lane)), 2) if j > i + 1)


def _swap(lanes: Changed, site: Site) -> set[Work]:
    place, i, j = site
    lane = lanes[place]
    lane[i], lane[j] = lane[j], lane[i]
    return {lane[i], lane[j]}


def _shifts(lanes: Lanes, random: Random) -> Iterator[Site]:
    for place, lane in lanes.items():
        size = len(lane)
        yield from ((place, i, j) for i in range(size) for j in range(size) if abs(i - j) > 1)


def _shift(lanes: Changed, site: Site) -> set[Work]:
    place, i, j = site
    work = lanes[place].pop(i)
    lanes[place].insert(j, work)
    return {work}


def _drop(lanes: Changed, site: Site) -> set[Work]:
    place, index = site
    return {lanes[place].pop(index)}


def _anywhere(lanes: Lanes, random: Random) -> Iterator[Site]:
    """Every work with a random place in a random lane."""
    places = sorted(lanes)
    for place, index in _every_work(lanes, random):
        target = random.choice(places)
        yield place, index, target, random.randint(0, len(lanes[target]))


def _duplicate(lanes: Changed, site: Site) -> set[Work]:
    place, index, target, position = site
    work = lanes[place][index]
    lanes[target].insert(position, work)
    return {work}


def _elsewhere(lanes: Lanes, random: Random) -> Iterator[Site]:
    """Every work with a random place in each other lane."""
    for place, index in _every_work(lanes, random):
        for target in lanes:
            if target != place:
                yield place, index, target, random.randint(0, len(lanes[target]))


def _move(lanes: Changed, site: Site) -> set[Work]:
    place, index, target, position = site
    work = lanes[place].pop(index)
    lanes[target].insert(position, work)
    return {work}


def _across(lanes: Lanes, random: Random) -> Iterator[Site]:
    """Every work with a random partner in each later lane."""
    for one, other in combinations(sorted(lanes), 2):
        for index in range(len(lanes[one])):
            yield one, index, other, random.randrange(len(lanes[other]))


def _trade(lanes: Changed, site: Site) -> set[Work]:
    one, i, other, j = site
    lanes[one][i], lanes[other][j] = lanes[other][j], lanes[one][i]
    return {lanes[one][i], lanes[other][j]}


def _sliced(lanes: Lanes, random: Random) -> Iterator[Site]:
    """Every microbatch of which a lane runs several slices of one kind on one stage."""
    for place, lane in lanes.items():
        runs = [work[:3] for work in lane]
        yield from ((place, run) for run in runs if runs.count(run) > 1)


def _reverse_slices(lanes: Changed, site: Site) -> set[Work]:
    place, run = site
    lane = lanes[place]
    indices = [index for index, work in enumerate(lane) if work[:3] == run]
    works = [lane[index] for index in indices]
    for index, work in zip(indices, reversed(works)):
        lane[index] = work
    return {work for work, other in zip(works, reversed(works)) if work != other}


def _lane_pairs(lanes: Lanes, random: Random) -> Iterator[Site]:
    return combinations(sorted(lanes), 2)


def _exchange(lanes: Changed, site: Site) -> set[Work]:
    one, other = site
    lanes[one], lanes[other] = lanes[other], lanes[one]
    return {*lanes[one], *lanes[other]}


def _numbers(lanes: Lanes, random: Random) -> Iterator[Site]:
    """Every work with its stage, microbatch or slice one up or one down."""
    for place, index in _every_work(lanes, random):
        for field, number in enumerate(lanes[place][index][1:]):
            yield from ((place, index, field, step) for step in (-1, 1) if number + step >= 0)


def _renumber(lanes: Changed, site: Site) -> set[Work]:
    place, index, field, step = site
    old = lanes[place][index]
    kind, *numbers = old
    numbers[field] += step
    stage, mb, slice = numbers
    lanes[place][index] = (kind, stage, mb, slice)
    return {old, lanes[place][index]}


MUTATIONS = (
    Mutation("swap neighbours", _neighbours, _swap),
    Mutation("swap in a lane", _distant, _swap),
    Mutation("swap across lanes", _across, _trade),
    Mutation("drop", _every_work, _drop),
    Mutation("duplicate", _anywhere, _duplicate),
    Mutation("move in its lane", _shifts, _shift),
    Mutation("move to another lane", _elsewhere, _move),
    Mutation("reverse slices", _sliced, _reverse_slices),
    Mutation("exchange lanes", _lane_pairs, _exchange),
    Mutation("wrong number", _numbers, _renumber),
)
"""Every kind of mistake, in the order of the report."""


def mutants(lanes: Lanes, count: int, seed: str) -> Iterator[Mutant]:
    """Up to `count` mutants of each kind; the same for the same seed."""
    for mutation in MUTATIONS:
        yield from mutation.sample(lanes, count, Random(f"{seed}: {mutation.kind}"))

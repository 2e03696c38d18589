"""The best schedule for a request: every registered one, then a search, against a lower bound.

Nobody wants to know fifty schedules by name to choose one. The request says how many devices and
microbatches there are, what ops cost, what memory there is, into how many slices a sequence may be
cut and, if the layers differ, what each of them costs. Every registered schedule that does the same
work is priced, with each cut of the layers that suits it; then cut, placement and order are
searched together, from all of them. What comes out is never worse than any of them, and the bound
says how much better anything could be.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import islice, pairwise
from time import process_time
from typing import NamedTuple

from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost.layers import layered_shape
from penstock.search.best.bounds import lower_bound
from penstock.search.best.contenders import Field, contenders
from penstock.search.best.registered import Rival, known_of, placement_of, recomputes
from penstock.search.best.request import Wanted
from penstock.search.joint.joint import Candidate, Effort, Known, Problem, cuts, search
from penstock.search.joint.moves import CutAndHomes
from penstock.search.joint.polish import replay
from penstock.sim import simulate

SEARCHED = "searched"
RIVALS, SEARCH = 0.4, 0.9
"""Shares of the time after which no more registered schedules are asked, and the search ends."""


class RankedEntry(NamedTuple):
    """A schedule in the ranking, on stages of the layout."""

    label: str
    layout: CutAndHomes
    schedule: Schedule
    time: Fraction
    peak: Fraction
    """Most memory of any device."""

    @property
    def slices(self) -> int:
        return self.schedule.shape.slices[0]

    @property
    def sent(self) -> int:
        """Boundary tensors of whole sequences that go from one device to another in a step."""
        homes, shape = self.layout.placement, self.schedule.shape
        return 2 * shape.microbatches * sum(a != b for a, b in pairwise(homes))

    @property
    def standing(self) -> tuple[Fraction, Fraction, int]:
        """The least goes first."""
        return self.time, self.peak, self.sent


class Ranking(NamedTuple):
    """Schedules, the fastest first, and what nothing can be faster than."""

    entries: list[RankedEntry]
    bound: Fraction
    reason: str
    passed_over: list[str]
    """Registered schedules that do not fit into the memory."""
    late: list[str]
    """Registered schedules that took too long to find."""
    unasked: list[str]
    """Registered schedules that were not asked for all values of their options."""


def best(wanted: Wanted) -> Ranking:
    """Every registered schedule and the searched ones, ranked."""
    began, problems = process_time(), {count: wanted.problem(count) for count in wanted.counts}
    field = contenders(wanted, began + RIVALS * wanted.seconds)
    tried = [(r.label, fit_schedule(wanted, problems, *r)) for r in (*field.written, *field.others)]
    entries = _ranked(entry for _, entry in tried if entry is not None)
    counts, end = _promising(entries), began + SEARCH * wanted.seconds
    for number, count in enumerate(counts):
        now = process_time()
        effort = Effort(wanted.ops(count), now + (end - now) / (len(counts) - number))
        entries += outdone(wanted, problems[count], effort, field, entries)
    entries = _ranked(entries)
    finest, over = problems[wanted.slices], [label for label, entry in tried if entry is None]
    again = any(recomputes(entry.schedule) for entry in entries)
    bound = lower_bound(finest, leave_out=["memory"] if again else [])
    least = bound.ticks * finest.scale.tick
    return Ranking(entries, least, bound.reason, over, field.late, field.unasked)


def _ranked(entries: Iterable[RankedEntry]) -> list[RankedEntry]:
    return sorted(entries, key=lambda entry: entry.standing)


def _promising(entries: list[RankedEntry]) -> list[int]:
    """Numbers of slices worth a search: one, and that of the fastest schedule with several."""
    found = (entry.slices for entry in entries if entry.slices > 1)
    return [1, *islice(found, 1)]


def outdone(
    wanted: Wanted, problem: Problem, effort: Effort, field: Field, entries: list[RankedEntry]
) -> list[RankedEntry]:
    """What a search finds with so many slices, which no contender with as many is ahead of."""
    count = problem.slices
    seeds = [known_of(rival.schedule) for rival in _startable(field.written, count)]
    found = search_entries(wanted, problem, effort, seeds)
    standing = _ranked([*found, *(entry for entry in entries if entry.slices == count)])
    ahead = leading_orders(problem, standing, _startable(field.others, count), field.sketch)
    more = Effort(wanted.ops(count) // 2, effort.until)
    return search_entries(wanted, problem, more, ahead) if ahead else found


def _startable(rivals: list[Rival], slices: int) -> list[Rival]:
    """Those that a search can start from."""
    equal = [rival for rival in rivals if rival.schedule.shape.slices[0] == slices]
    return [rival for rival in equal if not recomputes(rival.schedule)]


def leading_orders(
    problem: Problem, entries: list[RankedEntry], others: list[Rival], sketch: Candidate | None
) -> list[Known]:
    """What is ahead of the search although it did not start from it: it has to start there."""
    first, tick = entries[0] if entries else None, problem.scale.tick
    behind = sketch is None or (first and first.time <= sketch.listed.makespan * tick)
    if sketch is not None and problem.slices == 1 and not behind:
        (split, placement), listed = sketch.layout, sketch.listed
        return [Known(placement, sketch.pipeline.letters, listed.order, split)]
    return [known_of(rival.schedule) for rival in others if first and rival.label == first.label]


def search_entries(
    wanted: Wanted, problem: Problem, effort: Effort, seeds: list[Known]
) -> list[RankedEntry]:
    """What a search from some orders finds, if anything fits into the memory."""
    found = search(problem, effort, seeds)
    if found is None:
        return []
    label = SEARCHED if problem.slices == 1 else f"{SEARCHED} -k {problem.slices}"
    shape = _shape(wanted, found.layout, problem.slices)
    schedule = Schedule.of(label, shape, found.listed.order.lanes(found.pipeline))
    return [_simulated(wanted, label, found.layout, schedule)]


def fit_schedule(
    wanted: Wanted, problems: Mapping[int, Problem], label: str, schedule: Schedule
) -> RankedEntry | None:
    """A schedule with the cut that suits it best; None where it exceeds the limit with all."""
    problem, priced = problems[schedule.shape.slices[0]], list[RankedEntry]()
    for layout in cuts(problem, placement_of(schedule)):
        shape = _shape(wanted, layout, problem.slices)
        cut = replace(schedule, shape=shape, derived={})
        if schedule.pairs or recomputes(schedule):
            entry = _simulated(wanted, label, layout, cut)
        else:
            entry = _replayed(problem, label, layout, cut)
        if wanted.limit is None or entry.peak <= wanted.limit:
            priced.append(entry)
    return min(priced, key=lambda entry: (entry.time, entry.peak), default=None)


def _shape(wanted: Wanted, layout: CutAndHomes, slices: int) -> Shape:
    return layered_shape(wanted.layers, layout.split, wanted.case.p, wanted.case.m, slices)


def _simulated(wanted: Wanted, label: str, layout: CutAndHomes, schedule: Schedule) -> RankedEntry:
    timeline = simulate(schedule, wanted.cost)
    return RankedEntry(label, layout, schedule, timeline.makespan, max(timeline.peak))


def _replayed(problem: Problem, label: str, layout: CutAndHomes, schedule: Schedule) -> RankedEntry:
    """The same as simulated, in a fraction of the time."""
    known, scale = known_of(schedule), problem.scale
    pipeline = problem.pipeline(layout, known.letters)
    played = replay(pipeline, known.order)
    time, peak = played.makespan * scale.tick, int(played.peak.max()) * scale.grain
    return RankedEntry(label, layout, schedule, time, peak)

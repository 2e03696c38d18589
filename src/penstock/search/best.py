"""The best schedule for a request: every registered one, then a search, against a lower bound.

Nobody wants to know thirty schedules by name to choose one. The request says how many devices and
microbatches there are, what ops cost, what memory there is and, if the layers differ, what each of
them costs. Every registered schedule that does the same work is priced, with each cut of the layers
that suits it; then cut, placement and order are searched together, from all of them. What comes out
is never worse than any of them, and the bound says how much better anything could be.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from time import process_time
from typing import NamedTuple

from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost.layers import Layer, Layers, layered_shape, read_layers
from penstock.cost.model import UnitCost
from penstock.schedules import Case, Spec, registry
from penstock.search.bounds import lower_bound
from penstock.search.joint import Candidate, Effort, Known, Problem, cuts, search
from penstock.search.moves import Layout
from penstock.search.patience import within
from penstock.search.pipeline import Scale
from penstock.search.polish import peaks, replay
from penstock.search.quick import quick
from penstock.search.registered import LIMIT, VALUES, Rival, known_of, rivals, searches_layers
from penstock.sim import simulate

SEARCHED = "searched"
GRAIN = 12
"""Layers per device where none are given: 1, 2, 3 or 4 stages per device are then equal."""
OPS = 100_000_000
OPS_PER_OP = 30_000
"""What the search may place or replay: so much, and so much more for each op of the schedule."""
MOST = 2.0
"""Seconds for which a record that searches is waited for."""
RIVALS, SEARCH = 0.5, 0.9
"""Shares of the time after which no more searching records are asked, and the search ends."""


@dataclass(frozen=True)
class Wanted:
    """A request: sizes and prices, the layers, and what a device may hold."""

    case: Case
    layers: Layers
    limit: Fraction | None = None
    chunks: int = 3
    """Most stages per device."""
    seconds: float = 7.0
    """Processor time after which nothing more is tried."""

    @classmethod
    def of(cls, case: Case, layers: str = "", limit: Fraction | None = None) -> "Wanted":
        return cls(case, read_layers(layers or f"{GRAIN * case.p}*1/{GRAIN}"), limit)

    @property
    def ops(self) -> int:
        """Ops that the search may place or replay: they decide what it finds, not the clock."""
        return OPS + OPS_PER_OP * 3 * self.case.p * self.chunks * self.case.m

    @property
    def average(self) -> Case:
        """The request as it looks to a schedule with equal stages: prices of an average device."""
        columns = dict(zip(Layer._fields, zip(*self.layers)))
        shares = {name: sum(column) / Fraction(self.case.p) for name, column in columns.items()}
        prices = {name: getattr(self.case, name) * share for name, share in shares.items()}
        options = {} if self.limit is None else {LIMIT: self.limit}
        return replace(self.case.at(prices), options=options)

    @property
    def cost(self) -> UnitCost:
        case = self.case
        return UnitCost(
            times={"F": case.F, "I": case.I, "W": case.W},
            sizes={"act": case.act, "stash": case.stash},
            hop=case.hop,
        )

    @property
    def problem(self) -> Problem:
        scale = Scale.of(self.layers, self.case)
        return Problem(scale, self.case.p, self.case.m, self.chunks, scale.limit(self.limit))


class Entry(NamedTuple):
    """A schedule in the ranking, on stages of the layout."""

    label: str
    layout: Layout
    schedule: Schedule
    time: Fraction
    peak: Fraction
    """Most memory of any device."""

    @property
    def sent(self) -> int:
        """Boundary tensors that go from one device to another in a step."""
        homes, shape = self.layout.placement, self.schedule.shape
        return 2 * shape.microbatches * sum(a != b for a, b in pairwise(homes))


class Ranking(NamedTuple):
    """Schedules, the fastest first, and what nothing can be faster than."""

    entries: list[Entry]
    bound: Fraction
    reason: str
    passed_over: list[str]
    """Registered schedules that do not fit into the memory, or took too long."""


def best(wanted: Wanted) -> Ranking:
    """Every registered schedule and the searched one, ranked."""
    began, problem = process_time(), wanted.problem
    written = [rival for spec in _specs(priced=False) for rival in rivals_of(wanted, spec)]
    rare, unasked = unusual(wanted, written, began + RIVALS * wanted.seconds)
    worked, late = worked_out(wanted, began + RIVALS * wanted.seconds)
    tried = [(rival.label, fitted(wanted, problem, *rival)) for rival in (*written, *rare, *worked)]
    entries = [entry for _, entry in tried if entry is not None]
    effort = Effort(wanted.ops, began + SEARCH * wanted.seconds)
    entries += searched(wanted, effort, [known_of(rival.schedule) for rival in written])
    entries.sort(key=_standing)
    bound = lower_bound(problem)
    least = bound.ticks * problem.scale.tick
    if ahead := overtaking(wanted, entries, [*rare, *worked], least):
        more = Effort(wanted.ops // 2, effort.until)
        entries = [entry for entry in entries if entry.label != SEARCHED]
        entries = sorted([*entries, *searched(wanted, more, ahead)], key=_standing)
    over = [label for label, entry in tried if entry is None]
    return Ranking(entries, least, bound.reason, over + unasked + late)


def overtaking(
    wanted: Wanted, entries: list[Entry], others: list[Rival], least: Fraction
) -> list[Known]:
    """What is ahead of the search although it did not start from it: it has to start there."""
    first = entries[0] if entries else None
    if first is None or first.time > least:
        found, tick = within(MOST, partial(sketched, wanted)), wanted.problem.scale.tick
        if found is not None and (first is None or found.listed.makespan * tick < first.time):
            (split, placement), listed = found.layout, found.listed
            return [Known(placement, found.pipeline.letters, listed.order, split)]
    return [known_of(rival.schedule) for rival in others if first and rival.label == first.label]


def sketched(wanted: Wanted) -> Candidate | None:
    """What the same search finds with little effort, as registered schedules do that cut layers.

    Without a limit they take the memory of p microbatches on an average device.
    """
    problem = wanted.problem
    if wanted.limit is None:
        problem = replace(problem, cap=int(problem.scale.layers[:, 3].sum()))
    found = [quick(replace(problem, chunks=v)) for v in range(1, problem.chunks + 1)]
    known = [candidate for candidate in found if candidate is not None]
    return min(known, key=lambda candidate: candidate.standing, default=None)


def _standing(entry: Entry) -> tuple[Fraction, Fraction, int]:
    return entry.time, entry.peak, entry.sent


def _specs(*, priced: bool) -> list[Spec]:
    """Records that search, or that do not; those that cut layers themselves are left out."""
    known = registry().values()
    return [spec for spec in known if spec.priced == priced and not searches_layers(spec)]


def rivals_of(wanted: Wanted, spec: Spec, values: tuple[int, ...] = VALUES) -> Iterator[Rival]:
    """The variants of a record that do the work that is wanted, with few enough stages."""
    chunks = min(wanted.chunks, len(wanted.layers) // wanted.case.p)
    for rival in rivals(spec, wanted.average, chunks, values):
        if rival.schedule.shape.stages <= chunks * wanted.case.p:
            yield rival


def _asked(wanted: Wanted, spec: Spec) -> list[Rival]:
    return list(rivals_of(wanted, spec))


def unusual(wanted: Wanted, written: list[Rival], until: float) -> tuple[list[Rival], list[str]]:
    """The remaining values of options, up to m, and the names of records that time was short for.

    Only records that were of use with the usual values are asked.
    """
    names, found = {rival.schedule.name for rival in written}, list[Rival]()
    known, late = {rival.schedule for rival in written}, list[str]()
    values = tuple(value for value in range(1, wanted.case.m + 1) if value not in VALUES)
    for spec in _specs(priced=False):
        if spec.options and spec.name in names:
            for rival in rivals_of(wanted, spec, values):
                if process_time() > until:
                    late.append(spec.name)
                    break
                if rival.schedule not in known:
                    known.add(rival.schedule)
                    found.append(rival)
    return found, late


def worked_out(wanted: Wanted, until: float) -> tuple[list[Rival], list[str]]:
    """The orders of records that search, and the names of those that took too long.

    Each is asked in a process of its own, which is ended after half of the time that is left, or
    after `MOST` seconds.
    """
    found: list[Rival] = []
    late: list[str] = []
    for spec in _specs(priced=True):
        patience = min(MOST, (until - process_time()) / 2)
        answer = within(patience, partial(_asked, wanted, spec)) if patience > 0 else None
        found += answer or []
        late += [spec.name] if answer is None else []
    return found, late


def searched(wanted: Wanted, effort: Effort, seeds: list[Known]) -> list[Entry]:
    """What a search from the orders of some schedules finds, if anything fits into the memory."""
    found = search(wanted.problem, effort, seeds)
    if found is None:
        return []
    lanes = found.listed.order.lanes(found.pipeline.letters)
    schedule = Schedule.of(SEARCHED, _shape(wanted, found.layout), lanes)
    return [_simulated(wanted, SEARCHED, found.layout, schedule)]


def fitted(wanted: Wanted, problem: Problem, label: str, schedule: Schedule) -> Entry | None:
    """A schedule with the cut that suits it best; None where it exceeds the limit with all."""
    known, scale, priced = known_of(schedule), problem.scale, list[Entry]()
    for layout in cuts(problem, known.placement):
        cut = replace(schedule, shape=_shape(wanted, layout), derived={})
        if schedule.pairs:
            entry = _simulated(wanted, label, layout, cut)
        else:
            pipeline = problem.pipeline(layout, known.letters)
            time, peak = replay(pipeline, known.order), max(peaks(pipeline, known.order))
            entry = Entry(label, layout, cut, time * scale.tick, peak * scale.grain)
        if wanted.limit is None or entry.peak <= wanted.limit:
            priced.append(entry)
    return min(priced, key=lambda entry: (entry.time, entry.peak), default=None)


def _shape(wanted: Wanted, layout: Layout) -> Shape:
    return layered_shape(wanted.layers, layout.split, wanted.case.p, wanted.case.m)


def _simulated(wanted: Wanted, label: str, layout: Layout, schedule: Schedule) -> Entry:
    timeline = simulate(schedule, wanted.cost)
    return Entry(label, layout, schedule, timeline.makespan, max(timeline.peak))

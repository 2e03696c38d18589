"""Who takes part when the best schedule is looked for: every registered one that does the work.

Records that only write an order down are asked at once, with the usual values of their options and
then, while there is time, with all others. Records that search for one are asked at the same time,
each in a process of its own, which is ended when it takes too long.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from time import monotonic, process_time
from typing import NamedTuple

from penstock.schedules import Spec, registry
from penstock.search.best.registered import VALUES, Rival, rivals, searches_layers
from penstock.search.best.request import Wanted
from penstock.search.best.time_limit import Attempt
from penstock.search.joint.joint import Candidate
from penstock.search.joint.quick import quick

MOST_SECONDS = 6.0
"""Seconds for which records that search are waited for; most are ready before the others are."""


class Field(NamedTuple):
    """All contenders."""

    written: list[Rival]
    """Orders that a search starts from."""
    others: list[Rival]
    """Orders that it has to start from only if they are ahead of what it finds."""
    late: list[str]
    """Names of records that there was no time for."""
    unasked: list[str]
    """Names of records that there was no time to ask for all values of their options."""
    sketch: Candidate | None
    """What the records find that cut layers themselves."""


def contenders(wanted: Wanted, until: float) -> Field:
    """Every registered schedule that does the work, as far as there is time."""
    began = monotonic()
    asked = {spec.name: Attempt(partial(_asked, wanted, spec)) for spec in _specs(priced=True)}
    sketch = Attempt(partial(sketch_search, wanted))
    written = [
        rival
        for count, spec in product(wanted.counts, _specs(priced=False))
        for rival in rivals_of(wanted, spec, count)
    ]
    rare, unasked = unusual(wanted, written, until)
    patience = min(MOST_SECONDS, wanted.seconds) - (monotonic() - began)
    worked, late = worked_out(asked, patience)
    return Field(written, rare + worked, late, unasked, sketch.answer(patience))


def _specs(*, priced: bool) -> list[Spec]:
    """Records that search, or that do not; those that cut layers themselves are left out."""
    known = registry().values()
    return [spec for spec in known if spec.priced == priced and not searches_layers(spec)]


def rivals_of(
    wanted: Wanted, spec: Spec, slices: int, values: tuple[int, ...] = VALUES
) -> Iterator[Rival]:
    """The variants of a record that do the work that is wanted, with few enough stages."""
    chunks = min(wanted.chunks, len(wanted.layers) // wanted.case.p)
    for rival in rivals(spec, replace(wanted.average, k=slices), chunks, values):
        if rival.schedule.shape.stages <= chunks * wanted.case.p:
            yield rival


def unusual(wanted: Wanted, written: list[Rival], until: float) -> tuple[list[Rival], list[str]]:
    """The remaining values of options, up to m, and the names of records that time was short for.

    Only records that were of use with the usual values are asked.
    """
    names, found = {rival.schedule.name for rival in written}, list[Rival]()
    known, late = {rival.schedule for rival in written}, list[str]()
    values = tuple(value for value in range(1, wanted.case.m + 1) if value not in VALUES)
    for count, spec in product(wanted.counts, _specs(priced=False)):
        if spec.options and spec.name in names:
            for rival in rivals_of(wanted, spec, count, values):
                if process_time() > until:
                    late.append(spec.name)
                    break
                if rival.schedule not in known:
                    known.add(rival.schedule)
                    found.append(rival)
    return found, list(dict.fromkeys(late))


def worked_out(
    asked: Mapping[str, Attempt[list[Rival]]], patience: float
) -> tuple[list[Rival], list[str]]:
    """The orders of records that search, and the names of those that took too long."""
    found: list[Rival] = []
    late: list[str] = []
    for name, attempt in asked.items():
        answer = attempt.answer(patience)
        found += answer or []
        late += [name] if answer is None else []
    return found, late


def _asked(wanted: Wanted, spec: Spec) -> list[Rival]:
    """They know whole sequences only."""
    return list(rivals_of(wanted, spec, 1))


def sketch_search(wanted: Wanted) -> Candidate | None:
    """What the same search finds with little effort, as registered schedules do that cut layers.

    Without a limit they take the memory of p microbatches on an average device.
    """
    problem = wanted.problem()
    if wanted.limit is None:
        problem = replace(problem, cap=int(problem.scale.layers[:, 3].sum()))
    found = [quick(replace(problem, chunks=v)) for v in range(1, problem.chunks + 1)]
    known = [candidate for candidate in found if candidate is not None]
    return min(known, key=lambda candidate: candidate.standing, default=None)

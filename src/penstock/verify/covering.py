"""Few schedules that together have everything that a model's layers meet in a pipeline.

What a layer is asked for depends on the kinds of ops, on slices, and on what travels: not on the
order of a paper. So of all schedules those are taken that have something which the ones before have
not.
"""

from collections.abc import Iterable

from penstock.core.loans import helps_of
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.schedules import Spec
from penstock.verify.cases import smallest

TO_LAYERS = "FNRBIWEDST"
"""Kinds of ops that are work of layers."""


def features(schedule: Schedule) -> set[str]:
    """What a schedule asks of layers."""
    shape = schedule.shape
    found = {kind for kind in TO_LAYERS if kind in schedule.table.kinds}
    special = {
        "slices": max(shape.slices) > 1,
        "attention alone": bool(shape.weightless),
        "weights to attention": shape.to_attention != "heads" and bool(shape.weightless),
        "loans": bool(schedule.loans),
        "gangs": bool(helps_of(schedule)) and not schedule.loans,
        "pairs": bool(schedule.pairs),
        "embedding on shards": shape.embed == "E",
        f"loss by {shape.loss}": True,
    }
    return found | {name for name, there in special.items() if there}


def covering_schedules(specs: Iterable[Spec]) -> list[Spec]:
    """Schedules that have every feature which any of these has: each time the first of those that
    have most of what is missing."""
    candidates: list[tuple[Spec, set[str]]] = []
    for spec in specs:
        try:
            candidates.append((spec, features(spec.build(smallest(spec)))))
        except ShapeError:
            continue
    chosen: list[Spec] = []
    missing = set[str]().union(*(own for _, own in candidates))
    while missing:
        spec, own = max(candidates, key=lambda each: len(each[1] & missing))
        chosen.append(spec)
        missing -= own
    return chosen

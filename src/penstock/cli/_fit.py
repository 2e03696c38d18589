"""One request for several schedules that do not all take the same flags.

`compare` lays schedules side by side, and some cut sequences or models and others do not. A flag
goes to the schedules that take it; for the others it is ignored, and the user is told.
"""

from collections.abc import Sequence
from dataclasses import replace

from penstock.cli._numbers import assignments
from penstock.cli._request import STDIN, Request, generate_schedule, read_schedule
from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules import Spec, find, names_a_file, registry


def resolve_all(
    targets: Sequence[str], request: Request, cost: UnitCost
) -> tuple[list[Schedule], list[str]]:
    """The schedules of names and files, and a note on each flag that was ignored."""
    specs = [registry()[target] for target in targets if target in registry()]
    _refuse_foreign_options(specs, request)
    schedules: list[Schedule] = []
    notes: list[str] = []
    for target in targets:
        if target == STDIN or names_a_file(target):
            schedules.append(request.changed(read_schedule(target, Request())))
        else:
            fitting, found = _fit(find(target), request)
            schedules.append(generate_schedule(find(target), fitting, cost))
            notes += found
    return schedules, notes


def _refuse_foreign_options(specs: Sequence[Spec], request: Request) -> None:
    """An option that no schedule has is a mistake, not something to leave out."""
    known = sorted({option.name for spec in specs for option in spec.options})
    for key in assignments("-o", request.options or ()):
        if key not in known:
            raise ShapeError(
                f"none of the schedules has an option {key!r}",
                hint=f"options here: {', '.join(known)}" if known else "leave -o out",
            )


def _fit(spec: Spec, request: Request) -> tuple[Request, list[str]]:
    """The request without what the schedule does not take, and notes that say so."""
    left_out: list[str] = []
    if spec.chunks is not None and request.chunks not in (None, spec.chunks):
        left_out.append(f"has {spec.chunks} stage(s) per device: -v {request.chunks}")
        request = replace(request, chunks=None)
    if not spec.sliced and request.slices not in (None, 1):
        left_out.append(f"does not cut sequences into slices: -k {request.slices}")
        request = replace(request, slices=None)
    known = {option.name for option in spec.options}
    fitting = [item for item in request.options or () if _key(item) in known]
    foreign = [item for item in request.options or () if _key(item) not in known]
    left_out += [f"has no option {_key(item)!r}: -o {item}" for item in foreign]
    notes = [f"note: {spec.name} {reason} ignored" for reason in left_out]
    return replace(request, options=fitting), notes


def _key(item: str) -> str:
    return item.partition("=")[0].strip()

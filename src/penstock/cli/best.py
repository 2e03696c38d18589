"""`penstock best`: the fastest schedule for a request, registered or searched, and its distance."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any

import typer

from penstock.cli._flat import flat
from penstock.cli._numbers import parse_bytes, parse_number, sizes_of, times_of
from penstock.cli._output import emit, emit_json, emit_table, note
from penstock.cli._record import plain
from penstock.cli._request import AsJson, Devices, Hop, Microbatches, Times
from penstock.cli._written_files import refuse_lost
from penstock.draw import words
from penstock.draw.words import count_of
from penstock.errors import PlanError, ShapeError
from penstock.schedules import Case
from penstock.search.best.best import RankedEntry, Ranking, best
from penstock.search.best.request import Wanted

ROWS_SHOWN = 12
"""Rows of the table; `--json` has all."""
COUNTED = ("F", "I", "W", "act", "stash")


@dataclass(frozen=True)
class Size:
    """How much there is to do, and on how many devices."""

    devices: Devices = None
    microbatches: Microbatches = None
    chunks: Annotated[
        int,
        typer.Option(
            "-v", "--chunks", metavar="V", min=1, help="Largest number of stages per device."
        ),
    ] = 3
    slices: Annotated[
        int,
        typer.Option(
            "-k", "--slices", metavar="K", min=1, help="Largest number of slices per sequence."
        ),
    ] = 1


@dataclass(frozen=True)
class Costs:
    """What ops and buffers cost, and what memory there is."""

    times: Times = ""
    hop: Hop = "0"
    sizes: Annotated[
        str, typer.Option(metavar="act=1,stash=1", help="Memory of an activation and of a stash.")
    ] = ""
    limit: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Memory limit of each device, in the unit of --sizes."),
    ] = ""
    layers: Annotated[
        str,
        typer.Option(
            metavar="LAYERS|FILE",
            help="Layers as COUNT*TIME@MEMORY,... or a file with a line for each kind of layer.",
        ),
    ] = ""
    boundary: Annotated[
        str, typer.Option(metavar="BYTES", help="Bytes of a microbatch between two stages.")
    ] = "1"


Save = Annotated[
    str | None, typer.Option("--save", metavar="FILE", help="Write the winner as text lanes.")
]
Seconds = Annotated[
    float,
    typer.Option("--seconds", min=0.1, max=3600, help="Limit of processor time."),
]


def register(app: typer.Typer) -> None:
    app.command("best")(flat(best_of_all))


def best_of_all(
    size: Size, costs: Costs, save: Save = None, seconds: Seconds = 8.0, as_json: AsJson = False
) -> None:
    """Find the fastest schedule: every registered one, then a search, against a lower bound.

    Registered schedules are tried with each number of stages and slices and each value of their
    options, with the splits of the layers that suit them. The search has its own split, placement
    and order. Exit code 1: no schedule stays within the memory limit.
    """
    if not seconds > 0:  # not a number is not in any range
        raise ShapeError(f"--seconds is {seconds}", hint="give a number of seconds, as 7")
    boundary = parse_bytes("--boundary", costs.boundary)
    refuse_lost({"--save": save})
    wanted = replace(_wanted(size, costs), chunks=size.chunks, slices=size.slices, seconds=seconds)
    ranking = best(wanted)
    if not ranking.entries:
        raise PlanError(
            f"no schedule of {wanted.case.m} microbatches stays within {costs.limit}",
            hint="raise --limit, or give more devices",
        )
    if save:
        _save(save, wanted, ranking.entries[0])
    if as_json:
        emit_json(_record(wanted, ranking, boundary))
    else:
        _print(ranking, boundary)


def _wanted(size: Size, costs: Costs) -> Wanted:
    prices = {**times_of("--times", costs.times), **sizes_of("--sizes", costs.sizes)}
    for name in prices:
        if name not in COUNTED:
            raise ShapeError(
                f"schedules are not ranked by {name}",
                hint=f"set only {', '.join(COUNTED)}",
            )
    prices["hop"] = parse_number("--hop", costs.hop)
    case = _case(size, prices)
    limit = parse_bytes("--limit", costs.limit) if costs.limit else None
    wanted = Wanted.of(case, costs.layers, limit)
    if len(wanted.layers) < case.p:
        raise ShapeError(
            f"{count_of(len(wanted.layers), 'layer')} cannot be shared by {case.p} devices",
            hint="give every device at least one layer",
        )
    return wanted


def _case(size: Size, prices: Mapping[str, Fraction]) -> Case:
    for flag, count in (("-p", size.devices), ("-m", size.microbatches)):
        if count is None or count < 1:
            said = "missing" if count is None else count
            raise ShapeError(f"{flag} is {said}", hint="give both, for example -p 4 -m 8")
    return Case(size.devices or 1, size.microbatches or 1).at(prices)


def _save(path: str, wanted: Wanted, winner: RankedEntry) -> None:
    """The lanes, with the cut of the layers, and what a reader needs beside them: the prices."""
    from penstock.files import save_text
    from penstock.files.text import dumps

    lines = [
        f"{winner.label}: makespan {words.number(winner.time)}, peak {words.number(winner.peak)}",
        f"simulated with {_flags(wanted.case)}",
    ]
    save_text(path, "".join(f"# {line}\n" for line in lines) + dumps(winner.schedule))
    note(f"wrote {path}")


def _flags(case: Case) -> str:
    """Prices as they are typed: a file has the shares of its stages, but no prices."""
    times, sizes = (
        ",".join(f"{name}={getattr(case, name)}" for name in names)
        for names in (COUNTED[:3], COUNTED[3:])
    )
    return f"--times {times} --sizes {sizes} --hop {case.hop}"


def _distance(entry: RankedEntry, ranking: Ranking) -> Fraction:
    return entry.time / ranking.bound - 1 if ranking.bound else Fraction(0)


def _record(wanted: Wanted, ranking: Ranking, boundary: Fraction) -> dict[str, Any]:
    return {
        "devices": wanted.case.p,
        "microbatches": wanted.case.m,
        "slices": wanted.slices,
        "limit": None if wanted.limit is None else plain(wanted.limit),
        "bound": plain(ranking.bound),
        "bound_reason": ranking.reason,
        "schedules": [_row(entry, ranking, boundary) for entry in ranking.entries],
        "passed_over": ranking.passed_over,
        "late": ranking.late,
        "unasked": ranking.unasked,
    }


def _row(entry: RankedEntry, ranking: Ranking, boundary: Fraction) -> dict[str, Any]:
    return {
        "name": entry.label,
        "makespan": plain(entry.time),
        "distance": float(_distance(entry, ranking)),
        "peak": plain(entry.peak),
        "bytes": plain(entry.sent * boundary),
        "slices": entry.slices,
        "layers": list(entry.layout.split),
        "placement": list(entry.layout.placement),
    }


def _print(ranking: Ranking, boundary: Fraction) -> None:
    rows = [
        (
            words.number(entry.time),
            words.percent(_distance(entry, ranking)),
            words.number(entry.peak),
            words.number(entry.sent * boundary),
            entry.label,
        )
        for entry in ranking.entries[:ROWS_SHOWN]
    ]
    emit_table(("makespan", "above bound", "peak", "bytes", "schedule"), rows)
    winner, more = ranking.entries[0], len(ranking.entries) - ROWS_SHOWN
    emit("")
    emit(f"bound {words.number(ranking.bound)} ({ranking.reason}): nothing is faster")
    emit(f"winner: layers {_listed(winner.layout.split)}")
    emit(f"        on devices {_listed(winner.layout.placement)}")
    if more > 0 or ranking.passed_over:
        note(f"{max(more, 0)} more are slower, {len(ranking.passed_over)} are over the limit")
    if ranking.late:
        note(f"took too long: {', '.join(ranking.late)}; raise --seconds")
    if ranking.unasked:
        names = ", ".join(ranking.unasked)
        note(f"no time for all values of the options of {names}; raise --seconds")


def _listed(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))

"""What a user asks for: a schedule of some size, or a file, and what its ops cost.

Every verb reads its options from here, so that a flag means the same everywhere.
"""

import sys
from dataclasses import dataclass
from typing import Annotated
from warnings import catch_warnings, simplefilter

import typer

from penstock.cli._completion import complete_changes, complete_names, complete_options
from penstock.cli._numbers import assignments, parse_number, sizes_of, times_of
from penstock.cli._output import note
from penstock.core.schedule import Schedule
from penstock.cost.causal import CausalCost
from penstock.cost.model import UnitCost
from penstock.errors import FormatError, ShapeError
from penstock.schedules import Spec, find, names_a_file
from penstock.transform import combine

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Force = Annotated[
    bool,
    typer.Option("--force", help="Start even with too few cores or too little memory."),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE",
        show_default=False,
        help="A schedule of `penstock list`, or a file (`-` is stdin): text lanes, JSON or "
        "PyTorch's CSV.",
        autocompletion=complete_names,
    ),
]
Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME|FILE...",
        show_default=False,
        help="Schedules or files.",
        autocompletion=complete_names,
    ),
]


STDIN = "-"
LONG_WORK = 500_000
"""Ops from which a request takes seconds, so that a person wants to know that it is under way."""


Devices = Annotated[
    int | None, typer.Option("-p", "--devices", metavar="P", help="Pipeline devices.")
]
Microbatches = Annotated[
    int | None, typer.Option("-m", "--microbatches", metavar="M", help="Microbatches.")
]
Times = Annotated[
    str, typer.Option(metavar="F=1,I=1,W=1", help="Time of each kind of op. B costs I + W.")
]
Hop = Annotated[str, typer.Option(metavar="TIME", help="Latency of a transfer between devices.")]


@dataclass(frozen=True)
class Request:
    """Which instance of a registered schedule is meant."""

    devices: Devices = None
    microbatches: Microbatches = None
    chunks: Annotated[
        int | None,
        typer.Option("-v", "--chunks", metavar="V", help="Stages per device (virtual stages)."),
    ] = None
    slices: Annotated[
        int | None, typer.Option("-k", "--slices", metavar="K", help="Slices per microbatch.")
    ] = None
    options: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--option",
            metavar="KEY=VALUE",
            help="An option of the schedule; repeatable.",
            autocompletion=complete_options,
        ),
    ] = None
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="CHANGE",
            help="A change to the schedule; repeatable: slices, recompute, vocabulary, offload.",
            autocompletion=complete_changes,
        ),
    ] = None

    def changed(self, schedule: Schedule) -> Schedule:
        """The schedule with the changes that were asked for."""
        return combine(schedule, self.changes) if self.changes else schedule

    @property
    def given(self) -> list[str]:
        """The flags that were used."""
        values = (self.devices, self.microbatches, self.chunks, self.slices, self.options or None)
        return [flag for flag, value in zip("pmvko", values) if value is not None]


@dataclass(frozen=True)
class PriceFlags:
    """What ops, transfers and buffers cost."""

    times: Times = ""
    hop: Hop = "0"
    sizes: Annotated[
        str,
        typer.Option(
            metavar="act=1,stash=1",
            help="Memory of each buffer: act stash ckpt kv dkv logits given temp.",
        ),
    ] = ""
    attention: Annotated[
        str, typer.Option(metavar="PART", help="Part of the times that is causal attention.")
    ] = "0"
    communication: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Tensor-parallel communication of a forward or input gradient."
        ),
    ] = "0"

    def cost(self) -> UnitCost:
        """The cost model of these prices."""
        return CausalCost(
            times=times_of("--times", self.times),
            sizes=sizes_of("--sizes", self.sizes),
            hop=parse_number("--hop", self.hop),
            attention=parse_number("--attention", self.attention),
            communication=parse_number("--communication", self.communication),
        )


UNPRICED = UnitCost()


def resolve(target: str, request: Request, cost: UnitCost = UNPRICED) -> Schedule:
    """The schedule that a name with numbers, or a file, stands for.

    The prices matter to a schedule whose order depends on them.
    """
    if target == STDIN or names_a_file(target):
        return request.changed(read_schedule(target, request))
    return generate_schedule(find(target), request, cost)


def generate_schedule(spec: Spec, request: Request, cost: UnitCost = UNPRICED) -> Schedule:
    """A registered schedule of the requested size."""
    if request.devices is None or request.microbatches is None:
        raise ShapeError(
            f"{spec.name} needs a number of devices and a number of microbatches",
            hint="give both, for example -p 4 -m 8",
        )
    options = assignments("-o", request.options or ())
    sizes = (request.devices, request.microbatches, request.chunks, request.slices)
    case = spec.case(*sizes, options, cost.prices)
    ops = 2 * case.p * case.v * case.m * case.k
    if ops > LONG_WORK:
        note(f"generating and proving at least {ops:,} ops ...")
    return request.changed(spec.build(case))


def read_schedule(path: str, request: Request) -> Schedule:
    if request.given:
        flags = " ".join(f"-{flag}" for flag in request.given)
        raise ShapeError(
            f"{path} is a file and has its own size, but {flags} was given",
            hint=f"leave {flags} out",
        )
    from penstock.files import load, load_stream  # deferred: most requests are names

    try:
        with catch_warnings(record=True) as warnings:
            simplefilter("always")
            schedule = load_stream(sys.stdin.buffer, "stdin") if path == STDIN else load(path)
    except FormatError as error:
        raise ShapeError(f"{path}, {error.message}", hint=error.hint) from None
    for warning in warnings:
        note(f"note: {path}: {warning.message}")
    return schedule

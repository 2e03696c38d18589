"""`penstock verify`: schedules run by real processes and compared with one plain process."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.arch.mesh_shape import refuse_misfits
from penstock.cli._completion import complete_names
from penstock.cli._flat import flat
from penstock.cli._mesh_request import MeshRequest
from penstock.cli._needs import need_torch
from penstock.cli._numbers import assignments
from penstock.cli._output import emit_json, note
from penstock.cli._request import AsJson, Force, Request, resolve
from penstock.cli._verdicts import print_verdicts, verdict_record, worst_of
from penstock.draw.words import count_of
from penstock.errors import RunError, ShapeError
from penstock.run.process.machine import Machine, this_machine
from penstock.schedules import registry

if TYPE_CHECKING:
    from penstock.core.schedule import Schedule
    from penstock.verify.variants import Trial
    from penstock.verify.verifier import VerdictRow

MOST_PROCESSES = 64
"""Processes that one machine is asked for; each of them takes a few hundred megabytes."""
UNEQUAL = 1

VerifyTarget = Annotated[
    str,
    typer.Argument(
        metavar="[NAME|FILE]",
        show_default=False,
        help="A schedule of `penstock list`, or a file (`-` is stdin).",
        autocompletion=complete_names,
    ),
]
Everything = Annotated[
    bool, typer.Option("--all", help="Every schedule of `penstock list`, on 4 processes.")
]
Device = Annotated[
    Literal["cpu", "cuda"],
    typer.Option(help="Where the tensors are."),
]


ONE_PROCESS_EACH = MeshRequest()


def register(app: typer.Typer) -> None:
    app.command("verify")(flat(verify))


def verify(
    request: Request,
    target: VerifyTarget = "",
    everything: Everything = False,
    spread: MeshRequest = ONE_PROCESS_EACH,
    device: Device = "cpu",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Run a schedule on several processes and compare loss and gradients with one process.

    Each run is one process per device, or several with --mesh, on a tiny model, under one variant:
    tied weights, uneven layers, packed documents and so on. The reference is a plain model without
    slices and stages. Exit code 1: a run is not equal.
    """
    _refuse_both_or_neither(target, request, everything, spread)
    need_torch()
    _refuse_device(device)
    machine = None if force else this_machine()
    _refuse_processes(spread.shape.ranks(request.devices or 1), machine)
    if everything:
        trials, notes = _all_trials(device)
    else:
        trials, notes = _trials_of(target, request, device, spread)
    _refuse_processes(_processes(trials), machine)
    _refuse_unrunnable(trials)
    for line in notes:
        note(line)
    rows = sorted(_run(trials), key=lambda row: (row.trial.schedule.name, row.trial.variant))
    if as_json:
        records = [verdict_record(row) for row in rows]
        emit_json(records if everything else worst_of(records))
    else:
        print_verdicts(rows)
    if not all(row.equal for row in rows):
        raise typer.Exit(UNEQUAL)


def _refuse_both_or_neither(
    target: str, request: Request, everything: bool, spread: MeshRequest
) -> None:
    if everything and (target or spread.given or request.given or request.changes):
        flags = [
            *(f"-{flag}" for flag in request.given),
            *("--with" for _ in request.changes or ()),
        ]
        given = target or next(iter(flags), "a mesh")
        raise ShapeError(
            f"--all chooses schedules and sizes itself, but {given} was given",
            hint=f"leave out --all or {given}",
        )
    if not everything and not target:
        raise ShapeError(
            "nothing to verify is named", hint="name a schedule, as NAME -p 4 -m 8, or give --all"
        )


def _refuse_device(device: str) -> None:
    from penstock.verify.trial import refuse_device

    refuse_device(device)


def _all_trials(device: str) -> tuple[list["Trial"], list[str]]:
    """Every schedule that can be run under every variant; the others are named in the notes."""
    from penstock.verify.cases import trials_by_name
    from penstock.verify.variants import ON_DEVICE

    found = [trials_by_name(spec, ON_DEVICE[device]) for spec in registry().values()]
    return [trial for trials, _ in found for trial in trials], [
        n for _, notes in found for n in notes
    ]


def _trials_of(
    target: str, request: Request, device: str, spread: MeshRequest
) -> tuple[list["Trial"], list[str]]:
    """One schedule of the requested size under every variant; on a mesh, if one is given."""
    from penstock.verify.cases import trials_of
    from penstock.verify.variants import ON_DEVICE, on_mesh

    schedule, variants = resolve(target, request), ON_DEVICE[device]
    halved = _halved(target, request)
    if spread.given:
        variants, halved = on_mesh(variants, spread.shape, spread.shard), schedule
        refuse_misfits(variants[0].scale.model, spread.shape)
    return trials_of(schedule, halved, variants)


def _halved(target: str, request: Request) -> "Schedule | None":
    """The same schedule of half the depth, where a registered one of a size was asked for."""
    from penstock.verify.cases import half

    if target not in registry() or request.devices is None or request.microbatches is None:
        return None
    spec, options = registry()[target], assignments("-o", request.options or ())
    case = spec.case(request.devices, request.microbatches, request.chunks, request.slices, options)
    halved = half(spec, case, options)
    return request.changed(spec.build(halved)) if halved else None


def _refuse_processes(count: int, machine: Machine | None) -> None:
    """Refuse more processes than are started here, or than the machine has room for."""
    if count > MOST_PROCESSES:
        raise ShapeError(
            f"{count} processes are more than the {MOST_PROCESSES} that are started here",
            hint=f"lower -p to {MOST_PROCESSES} or less",
        )
    if machine is not None:
        machine.refuse(count, 0)


def _refuse_unrunnable(trials: Sequence["Trial"]) -> None:
    """Refuse what cannot be run before any process is started."""
    from penstock.verify.verifier import refuse_unrunnable

    try:
        refuse_unrunnable(trials)
    except RunError as refusal:  # nothing has gone wrong yet: it is the request that cannot be met
        raise ShapeError(refusal.message, hint=refusal.hint) from None


def _processes(trials: Sequence["Trial"]) -> int:
    return max(trial.processes for trial in trials)


def _run(trials: list["Trial"]) -> list["VerdictRow"]:
    """The verdicts, with what is done so far for the person who waits."""
    from penstock.cli._progress import show_progress
    from penstock.verify.verifier import Verifier

    processes = count_of(_processes(trials), "process")
    if not sys.stderr.isatty():
        note(f"verifying {count_of(len(trials), 'run')} on {processes} ...")
    with Verifier() as verifier:
        return [verifier.row(trial) for trial in show_progress(trials, f"verified on {processes}")]

"""`penstock verify`: schedules run by real processes and compared with one plain process."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.arch.mesh_shape import refuse_misfits, refuse_shard
from penstock.cli._completion import complete_names
from penstock.cli._flat import flat
from penstock.cli._mesh_request import MeshRequest
from penstock.cli._needs import need_torch
from penstock.cli._numbers import assignments
from penstock.cli._output import emit_json, note
from penstock.cli._request import AsJson, Force, Request, resolve
from penstock.cli._verdicts import print_verdicts, verdict_record, worst_of
from penstock.cli._verify_modules import Modules, verify_own_modules
from penstock.draw.words import count_of
from penstock.errors import RunError, ShapeError
from penstock.estimate.named_model import named_model
from penstock.run.process.machine import Machine, this_machine
from penstock.schedules import registry

if TYPE_CHECKING:
    from penstock.core.schedule import Schedule
    from penstock.schedules import Spec
    from penstock.verify.variants import Trial, Variant
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
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="NAME|FILE",
        show_default=False,
        help="Run a tiny model with all parts of this one, a preset or a config.json; without a "
        "schedule, schedules that together have every kind of work.",
    ),
]
Device = Annotated[
    Literal["cpu", "cuda"],
    typer.Option(help="Where the tensors are."),
]


@dataclass(frozen=True)
class VerifyMaterial:
    """What is run, and where."""

    device: Device = "cpu"
    model: ModelName = ""
    modules: Modules = ""


ON_CPU = VerifyMaterial()
ONE_PROCESS_EACH = MeshRequest()


def register(app: typer.Typer) -> None:
    app.command("verify")(flat(verify_schedules))


def verify_schedules(
    request: Request,
    target: VerifyTarget = "",
    everything: Everything = False,
    spread: MeshRequest = ONE_PROCESS_EACH,
    material: VerifyMaterial = ON_CPU,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Run a schedule on several processes and compare loss and gradients with one process.

    Each run is one process per device, or several with --mesh, on a tiny model, under one variant:
    tied weights, uneven layers, packed documents and so on. The reference is a plain model without
    slices and stages. Exit code 1: a run is not equal.
    """
    device, model, modules = material.device, material.model, material.modules
    chooser = "--all" if everything else "--model without a schedule" if model else ""
    _refuse_both_or_neither(target, request, chooser if everything or not target else "", spread)
    if modules:
        _refuse_beside_modules(everything, spread, device, model)
    machine = None if force else this_machine()
    _refuse_processes(spread.shape.ranks(request.devices or 1), machine)
    schedule = resolve(target, request) if target else None  # refused before torch is loaded
    need_torch()
    _refuse_device(device)
    if modules and schedule:
        if not verify_own_modules(modules, schedule, as_json):
            raise typer.Exit(UNEQUAL)
        return
    variants = _variants(device, model)
    if schedule:
        trials, notes = _trials_of(schedule, _halved(target, request), variants, spread)
    else:
        trials, notes = _all_trials(variants, _chosen(everything))
    _refuse_processes(_processes(trials), machine)
    _refuse_unrunnable(trials)
    for line in notes:
        note(line)
    rows = sorted(_run(trials), key=lambda row: (row.trial.schedule.name, row.trial.variant))
    if as_json:
        records = [verdict_record(row) for row in rows]
        emit_json(worst_of(records) if target else records)
    else:
        print_verdicts(rows)
    if not all(row.equal for row in rows):
        raise typer.Exit(UNEQUAL)


def _refuse_both_or_neither(
    target: str, request: Request, chooser: str, spread: MeshRequest
) -> None:
    """`chooser` is the option that chooses schedules and sizes, if one does."""
    if chooser and (target or spread.given or request.given or request.changes):
        flags = [
            *(f"-{flag}" for flag in request.given),
            *("--with" for _ in request.changes or ()),
        ]
        given = target or next(iter(flags), "a mesh")
        raise ShapeError(
            f"{chooser} chooses schedules and sizes itself, but {given} was given",
            hint=f"leave out {chooser.split()[0]} or {given}",
        )
    if not chooser and not target:
        raise ShapeError(
            "nothing to verify is named", hint="name a schedule, as NAME -p 4 -m 8, or give --all"
        )


def _refuse_beside_modules(everything: bool, spread: MeshRequest, device: str, model: str) -> None:
    others = {
        "--all": everything,
        "a mesh": spread.given,
        "--device cuda": device != "cpu",
        "--model": bool(model),
    }
    given = next((name for name, is_given in others.items() if is_given), "")
    if given:
        raise ShapeError(
            f"--modules runs one schedule on one process for each device, but {given} was given",
            hint=f"leave out {given}; in a loop of your own, penstock.verify(pipeline, inputs, "
            "targets) compares whatever runs there",
        )


def _refuse_device(device: str) -> None:
    from penstock.verify.trial import refuse_device

    refuse_device(device)


def _variants(device: str, model: str) -> "Sequence[Variant]":
    """What a schedule is run under; with a small member of a model's family, if one is named."""
    from penstock.verify.members import variants_of_member
    from penstock.verify.variants import ON_DEVICE

    return variants_of_member(named_model(model), device) if model else ON_DEVICE[device]


def _chosen(everything: bool) -> "Iterable[Spec]":
    """All schedules, or those that together have every kind of work."""
    from penstock.verify.covering import covering_schedules

    return registry().values() if everything else covering_schedules(registry().values())


def _all_trials(
    variants: "Sequence[Variant]", specs: "Iterable[Spec]"
) -> tuple[list["Trial"], list[str]]:
    """Schedules that can be run under every variant; the others are named in the notes."""
    from penstock.verify.cases import trials_by_name

    found = [trials_by_name(spec, variants) for spec in specs]
    return [trial for trials, _ in found for trial in trials], [
        n for _, notes in found for n in notes
    ]


def _trials_of(
    schedule: "Schedule",
    halved: "Schedule | None",
    variants: "Sequence[Variant]",
    spread: MeshRequest,
) -> tuple[list["Trial"], list[str]]:
    """One schedule of the requested size under every variant; on a mesh, if one is given."""
    from penstock.verify.cases import trials_of
    from penstock.verify.variants import on_mesh

    if spread.given:
        variants, halved = on_mesh(variants, spread.shape, spread.shard), schedule
        refuse_misfits(variants[0].scale.model, spread.shape)
        refuse_shard(spread.shape, spread.shard)
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

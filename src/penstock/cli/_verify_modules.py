"""`penstock verify NAME --modules PATH`: modules of one's own, or a decoder without a record."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli._output import emit, emit_json, emit_table, note
from penstock.draw.words import count_of

if TYPE_CHECKING:
    from penstock.core.schedule import Schedule
    from penstock.verify.own_pipeline import PipelineVerdict

Modules = Annotated[
    str,
    typer.Option(
        "--modules",
        metavar="PATH",
        help="Run modules of your own instead: a Python file with make_stages, loss_of and "
        "batch_of, or a folder with the config.json of a decoder.",
    ),
]


def verify_own_modules(path: str, schedule: "Schedule", as_json: bool) -> bool:
    """Run the schedule over the modules of a file or folder; whether it equals one process."""
    from penstock.run.launch.worker_pool import Crew
    from penstock.verify.module_source import refuse_misfit, verify_modules

    refuse_misfit(path, schedule)
    devices = schedule.shape.devices
    note(f"verifying the modules of {path} on {count_of(devices, 'process')} ...")
    with Crew(devices) as crew:
        verdict = crew.run(verify_modules, path, schedule)[0]
    if as_json:
        emit_json(_record(verdict, schedule, path))
    else:
        _print(verdict, schedule)
    return verdict.equal


def _record(verdict: "PipelineVerdict", schedule: "Schedule", path: str) -> dict[str, Any]:
    found, shape = verdict.difference, schedule.shape
    return {
        "name": schedule.name,
        "modules": path,
        "devices": shape.devices,
        "microbatches": shape.microbatches,
        "stages": shape.stages,
        "tolerance": verdict.tolerance.gradient,
        "loss_error": found.loss,
        "grad_error": found.gradient,
        "worst": found.parameter,
        "equal": verdict.equal,
    }


def _print(verdict: "PipelineVerdict", schedule: "Schedule") -> None:
    found, shape = verdict.difference, schedule.shape
    numbers = (shape.devices, shape.microbatches, shape.stages)
    row = (
        *(schedule.name, *map(str, numbers), f"{found.loss:.0e}", f"{found.gradient:.0e}"),
        *(found.parameter, "yes" if verdict.equal else "NO"),
    )
    head = ("name", "p", "m", "stages", "loss error", "gradient error", "worst", "equal")
    emit_table(head, [row])
    if not verdict.equal:
        emit(f"\n{verdict}")

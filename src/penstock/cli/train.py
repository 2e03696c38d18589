"""`penstock train`: train a model as a configuration says."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._completion import complete_settings
from penstock.cli._needs import need_pydantic, need_torch
from penstock.cli._output import emit, emit_json, note
from penstock.cli._request import AsJson, Force
from penstock.errors import PenstockError
from penstock.terminal import printable

if TYPE_CHECKING:
    from penstock.train.config.settings import Settings
    from penstock.train.report.outcome import RunOutcome

LAUNCHED = "RANK"
"""Set in the environment of a process that a launcher started as one rank of many."""
LOCAL_RANK = "LOCAL_RANK"
"""Number of such a process on its machine."""


def register(app: typer.Typer) -> None:
    app.command("train")(train)


def _print_schema(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:  # a shell that completes reads a line only
        need_pydantic()
        from penstock.train.config.schema import schema

        emit_json(schema())
        raise typer.Exit


Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Change a setting; may be repeated.",
        autocompletion=complete_settings,
    ),
]


def train(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="What to train, on what, and how.")
    ],
    ranks: Annotated[
        int,
        typer.Option(
            "-n", "--ranks", metavar="N", help="Processes to start here.", show_default=False
        ),
    ] = 0,
    changes: Changes = None,
    force: Force = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the settings, resolved, and exit.")
    ] = False,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            is_eager=True,
            callback=_print_schema,
            help="Print the JSON schema of a configuration, for editors, and exit.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model. Under torchrun each process is one rank; otherwise N are started here.

    Without -n, the configuration says how many: pipeline.devices x mesh.replicas x mesh.sequence x
    mesh.tensor.
    """
    need_pydantic()
    from penstock.train.config.save import dump

    settings = _settings(config, changes or [])
    if show:
        if as_json:
            emit_json(settings.model_dump(mode="json"))
        else:
            emit(dump(settings).rstrip())
        return
    need_torch()
    from penstock.run.process.machine import this_machine

    machine = None if force else this_machine()
    if LAUNCHED in os.environ:
        from penstock.train.loop.rank import run_rank

        raise typer.Exit(run_rank(settings, _print_record if as_json else _print_report, machine))
    from penstock.train.loop.start import start

    words = [word for change in changes or [] for word in ("--set", change)]
    words += ["--json"] if as_json else []
    raise typer.Exit(start(settings, config, ranks, words, note, machine))


def _print_report(outcome: "RunOutcome") -> None:
    from penstock.train.report.wording import words

    if outcome.compared:
        emit(printable(words(outcome)))  # a folder may be called anything


def _print_record(outcome: "RunOutcome") -> None:
    from penstock.train.report.outcome import outcome_record

    emit_json(outcome_record(outcome))


def _settings(config: Path, changes: list[str]) -> "Settings":
    """What is asked for; of the ranks of a machine the first says what is wrong with it."""
    from penstock.run.process.environment import read_place, refuse_environment
    from penstock.train.config.load import load

    try:
        settings = load(config, changes)
        if LAUNCHED in os.environ:
            read_place()
            refuse_environment()
    except PenstockError as error:
        if os.environ.get(LOCAL_RANK, "0") != "0":
            raise typer.Exit(error.exit_code) from None
        raise
    return settings

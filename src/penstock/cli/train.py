"""`penstock train`: train a model as a configuration says."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._needs import need_pydantic, need_torch
from penstock.cli._output import emit, emit_json, note
from penstock.cli._request import Force
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.train.config.settings import Settings

LAUNCHED = "RANK"
"""Set in the environment of a process that a launcher started as one rank of many."""
LOCAL_RANK = "LOCAL_RANK"
"""Number of such a process on its machine."""


def register(app: typer.Typer) -> None:
    app.command("train")(train)


def _print_schema(wanted: bool) -> None:
    if wanted:
        need_pydantic()
        from penstock.train.config.schema import schema

        emit_json(schema())
        raise typer.Exit


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
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="SECTION.KEY=VALUE", help="Change a setting; may be repeated."
        ),
    ] = None,
    force: Force = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the settings, resolved, and leave.")
    ] = False,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            is_eager=True,
            callback=_print_schema,
            help="Print the JSON schema of a configuration, for editors, and leave.",
        ),
    ] = False,
) -> None:
    """Train a model. Under torchrun each process is one rank; otherwise N are started here.

    Without -n, the configuration says how many: pipeline.devices x pipeline.replicas.
    """
    need_pydantic()
    from penstock.train.config.save import dump

    settings = _settings(config, changes or [])
    if show:
        emit(dump(settings).rstrip())
        return
    need_torch()
    from penstock.run.process.machine import this_machine

    machine = None if force else this_machine()
    if LAUNCHED in os.environ:
        from penstock.train.loop.rank import run_rank

        raise typer.Exit(run_rank(settings, machine))
    from penstock.train.loop.start import start

    raise typer.Exit(start(settings, config, ranks, changes or [], note, machine))


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

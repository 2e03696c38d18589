"""`penstock launch`: run a training program of one's own as the ranks of a run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._needs import need_torch
from penstock.cli._request import Force
from penstock.errors import ShapeError


def register(app: typer.Typer) -> None:
    app.command("launch", context_settings={"ignore_unknown_options": True})(launch_own_program)


def launch_own_program(
    program: Annotated[
        Path, typer.Argument(metavar="PROGRAM.py", help="A program that trains, of your own.")
    ],
    ranks: Annotated[
        int, typer.Option("-n", "--ranks", metavar="N", help="Processes to start here.")
    ],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORDS]...", help="What the program is given.")
    ] = None,
    force: Force = False,
) -> None:
    """Run a Python program as N ranks on this machine, as torchrun does on one machine.

    When a rank fails or is stopped, all ranks are ended within seconds, and the first cause is
    printed once. Other options come before the program.
    """
    if not program.is_file():
        raise ShapeError(f"{program} is not a file", hint="name a Python program")
    need_torch()
    from penstock.run.launch.launcher import launch_program
    from penstock.run.process.machine import this_machine

    if not force:
        this_machine().refuse(ranks, 0)
    raise typer.Exit(launch_program([sys.executable, str(program), *(words or ())], ranks))

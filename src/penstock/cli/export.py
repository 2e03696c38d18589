"""`penstock export`: the weights of a run as a Hugging Face folder."""

from os.path import isfile
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._needs import need_pydantic, need_torch
from penstock.cli._output import emit, emit_json, note
from penstock.cli._request import AsJson
from penstock.errors import ShapeError, shown


def register(app: typer.Typer) -> None:
    app.command("export")(export)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FOLDER",
            help="Folder to write; checkpoint.export of the run, or RUN/export, if left out.",
            show_default=False,
        ),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(metavar="DTYPE", help="Type of the weights, as checkpoint.export_dtype."),
    ] = "",
    step: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Step of the checkpoint; the newest complete one if left out."
        ),
    ] = None,
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Write the whole model, with the adapters of LoRA in it."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the weights of a run's checkpoint as a Hugging Face folder.

    The folder has the config.json, the tokenizer and all other files of the one that the run began
    with. Of a run with LoRA it has the adapters alone, as PEFT reads them, unless they are merged.
    The run itself is only read, and may still be going on.
    """
    need_pydantic()
    from penstock.train.config.load import load
    from penstock.train.config.save import SETTINGS_FILE

    if not isfile(run / SETTINGS_FILE):
        raise ShapeError(
            f"{shown(str(run), 300)} is not the folder of a run: it has no {SETTINGS_FILE}",
            hint="give the run.directory of a run, such as runs/quickstart",
        )
    settings = load(run / SETTINGS_FILE, [f"checkpoint.export_dtype={dtype}"] if dtype else [])
    need_torch()
    from penstock.train.loop.export import export_checkpoint, export_merged

    given = "" if merge else settings.checkpoint.export  # where the adapters are
    folder = to or Path(given or run / ("merged" if merge else "export"))
    done = (export_merged if merge else export_checkpoint)(settings, run, folder, step)
    for what in done.damaged:
        note(f"warning: {what}; an older checkpoint is exported")
    if as_json:
        emit_json({**done._asdict(), "folder": str(done.folder)})
        return
    note(str(done))
    emit(str(done.folder))

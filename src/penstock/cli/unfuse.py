"""`penstock unfuse`: a model that `penstock fuse` has written, as it was before."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._needs import need_torch
from penstock.cli._output import emit, emit_json, note
from penstock.cli._request import AsJson


def register(app: typer.Typer) -> None:
    app.command("unfuse")(unfuse)


def unfuse(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a fused model.")],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the model is written.")],
    as_json: AsJson = False,
) -> None:
    """Take fused MLPs of a model apart, to the bit where nothing has trained it since.

    Attentions that were removed do not come back. After training, and without the file
    unfuse.safetensors, parts of a run have the norm of the run.
    """
    need_torch()
    from penstock.fusion.fused_folder import unfuse_folder

    found = unfuse_folder(model, to)
    if as_json:
        emit_json({"folder": str(to), "layers": found.layers, "parameters": found.parameters})
        return
    note(f"wrote {to}: {found.layers} layers, {found.parameters:,} parameters")
    emit(str(to))

"""Pictures and exports: which there are, and how they reach their files.

Everything is rendered before the first file is touched, and each file is replaced in one step, so
that a failure leaves the old files as they were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Annotated

import typer

from penstock.cli._output import emit, note
from penstock.draw import render_as
from penstock.errors import ShapeError
from penstock.sim.timeline import Timeline

STDOUT = "-"
WRITERS = {
    "text": "penstock.files.text",
    "csv": "penstock.files.torch_csv",
    "json": "penstock.files.json",
}
"""Formats of a schedule, without times."""

Width = Annotated[
    int | None,
    typer.Option(
        "--width", min=20, max=2000, metavar="COLUMNS", help="Width of the terminal picture."
    ),
]


@dataclass(frozen=True)
class Pictures:
    """Files that hold a picture of timelines."""

    svg: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write an SVG picture. FILE - is stdout.")
    ] = None
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write an interactive HTML page.")
    ] = None
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a Chrome/Perfetto trace.")
    ] = None


@dataclass(frozen=True)
class Exports(Pictures):
    """Files that hold a picture, or the schedule itself."""

    text: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the schedule as text lanes.")
    ] = None
    csv: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the schedule as PyTorch's CSV.")
    ] = None


def destinations(wanted: Pictures, *, as_json: bool) -> dict[str, str]:
    """Format to file of everything that was asked for; JSON goes to stdout."""
    given = {field.name: getattr(wanted, field.name) for field in fields(wanted)}
    files = {name: path for name, path in given.items() if path is not None}
    files |= {"json": STDOUT} if as_json else {}
    for path in files.values():
        sharing = [f"--{name}" for name, other in files.items() if other == path]
        if len(sharing) > 1:
            where = "stdout" if path == STDOUT else path
            raise ShapeError(
                f"{' and '.join(sharing)} would both be written to {where}",
                hint="give each a file of its own",
            )
    return files


def write_pictures(files: Mapping[str, str], timelines: Sequence[Timeline]) -> None:
    """Render every format, then write every file."""
    texts = [(path, _render(name, timelines)) for name, path in files.items()]
    for path, text in texts:
        if path == STDOUT:
            emit(text)
        else:
            from penstock.files import save_text  # deferred: most pictures stay in the terminal

            save_text(path, text)
            note(f"wrote {path}")


def _render(name: str, timelines: Sequence[Timeline]) -> str:
    """One format of the schedule or of the timelines."""
    if name not in WRITERS:
        return render_as(name, timelines)
    text: str = import_module(WRITERS[name]).dumps(timelines[0].schedule)
    return text

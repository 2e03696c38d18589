"""`penstock list`: every schedule that Penstock knows, or all about some of them."""

from collections.abc import Sequence
from textwrap import fill
from typing import Annotated, Any

import typer

from penstock.cli._completion import complete_names
from penstock.cli._output import emit, emit_json, emit_table, note, text_width
from penstock.cli._request import AsJson
from penstock.draw.definitions import INDENT, render_definitions
from penstock.schedules import Spec, find, registry


def register(app: typer.Typer) -> None:
    app.command("list")(list_schedules)


def list_schedules(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME...]",
            show_default=False,
            help="Schedules to describe in full: paper, options, needs.",
            autocompletion=complete_names,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List every schedule: name, title, flags. With names: paper, options and needs of these."""
    specs = [find(name) for name in names] if names else list(registry().values())
    if as_json:
        emit_json([schedule_record(spec) for spec in specs])
    elif names:
        emit("\n".join(_described(spec) for spec in specs))
    else:
        _print_summary(specs)


def schedule_record(spec: Spec) -> dict[str, Any]:
    """The fields of one schedule; `chunks` is null where the user chooses with -v."""
    return {
        "name": spec.name,
        "title": spec.title,
        "paper": spec.paper,
        "needs": [need.text for need in spec.needs],
        "options": [{"name": option.name, "text": option.text} for option in spec.options],
        "chunks": spec.chunks,
        "slices": spec.sliced,
    }


def _print_summary(specs: Sequence[Spec]) -> None:
    rows = [(spec.name, spec.title, " ".join(_choices(spec))) for spec in specs]
    emit_table(("name", "title", "takes"), rows, columns=text_width())
    note("all take -p and -m; `penstock list NAME` shows paper, options (-o) and needs")


def _choices(spec: Spec) -> list[str]:
    """The flags that not every schedule takes."""
    takes = {"-v": spec.chunks is None, "-k": spec.sliced, "-o": bool(spec.options)}
    return [flag for flag, taken in takes.items() if taken]


def _described(spec: Spec) -> str:
    flags = [flag for flag in _choices(spec) if flag != "-o"]
    options = [(f"-o {option.name}=", option.text) for option in spec.options]
    lines = [
        ("paper", spec.paper),
        ("takes", " ".join(("-p -m", *flags, *(option for option, _ in options)))),
        *options,
        *(("needs", need.text) for need in spec.needs),
    ]
    title = fill(f"{spec.name}: {spec.title}", text_width(), subsequent_indent=INDENT)
    return f"{title}\n{render_definitions(lines, width=text_width())}"

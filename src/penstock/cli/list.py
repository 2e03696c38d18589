"""`penstock list`: every schedule that Penstock knows."""

from typing import Any

import typer

from penstock.cli._output import emit, emit_json, emit_table
from penstock.cli._request import AsJson
from penstock.schedules import Option, Spec, registry


def register(app: typer.Typer) -> None:
    app.command("list")(list_schedules)


def list_schedules(as_json: AsJson = False) -> None:
    """List every schedule: name, title, paper, needs, options."""
    specs = registry().values()
    if as_json:
        emit_json([schedule_record(spec) for spec in specs])
    else:
        emit_table(("name", "title", "takes", "paper"), [_row(spec) for spec in specs])
        emit("")
        emit_table(
            ("name", "what", "meaning"), [line for spec in specs for line in _conditions(spec)]
        )


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


def _row(spec: Spec) -> tuple[str, ...]:
    flags = "-p -m" + (" -v" if spec.chunks is None else "") + (" -k" if spec.sliced else "")
    return spec.name, spec.title, " ".join((flags, *map(_flag, spec.options))), spec.paper


def _conditions(spec: Spec) -> list[tuple[str, str, str]]:
    """What the options of a schedule mean, and what it needs."""
    options = [(spec.name, _flag(option), option.text) for option in spec.options]
    return options + [(spec.name, "needs", need.text) for need in spec.needs]


def _flag(option: Option[Any]) -> str:
    return f"-o {option.name}="

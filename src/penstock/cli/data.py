"""`penstock data`: what a corpus looks like before it is trained on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.arch.mesh_shape import MeshShape
from penstock.cli._data_report import (
    CorpusReport,
    corpus_report,
    open_corpus,
    prices_text,
    report_html,
    report_text,
)
from penstock.cli._data_settings import data_cache, data_settings
from penstock.cli._output import emit, emit_json, emit_table, note, width
from penstock.cli._policy_rows import PricedModel, any_length_schedule
from penstock.cli._progress import show_bytes, show_wait
from penstock.cli._request import AsJson
from penstock.cluster.read import read_cluster
from penstock.core.numbers import read_tokens
from penstock.data.open_source import source_files
from penstock.data.stats.policies import BatchRule
from penstock.errors import ShapeError, shown
from penstock.estimate.named_model import named_model
from penstock.files import save_text
from penstock.schedules import find

if TYPE_CHECKING:
    pass


def _option(metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, show_default=False, help=text)


FilesToRead = Annotated[
    list[str],
    typer.Argument(
        metavar="FILES",
        help="Files, folders or patterns; or a configuration, whose data and sizes are taken.",
    ),
]
CacheFolder = Annotated[
    Path | None, _option("FOLDER", "Where tokens are kept; ~/.cache/penstock if left out.")
]


def register(app: typer.Typer) -> None:
    verbs = typer.Typer()
    verbs.callback()(data)
    verbs.command("stats")(stats)
    app.add_typer(verbs, name="data")


def data() -> None:
    """Look at data before training: `penstock data stats FILES`."""


def stats(
    files: FilesToRead,
    source: Annotated[
        str, _option("NAME", "As data.source; told by the endings if left out.")
    ] = "",
    tokenizer: Annotated[str, _option("PATH", "As data.tokenizer; byte if left out.")] = "",
    form: Annotated[
        str,
        typer.Option(
            "--format", metavar="NAME", show_default=False, help="As data.format: what records are."
        ),
    ] = "",
    field: Annotated[str, _option("NAME", "As data.field: where a record has its text.")] = "",
    chat_template: Annotated[
        str, _option("FILE", "As data.chat_template; the tokenizer's own if left out.")
    ] = "",
    length: Annotated[str, _option("N", "Tokens of a sequence at most, as 64K.")] = "",
    batch: Annotated[str, _option("N", "Tokens of a global batch; 32 sequences if left out.")] = "",
    slice_tokens: Annotated[
        str,
        _option("N", "Tokens of a slice; if left out chosen, or without --model an eighth."),
    ] = "",
    model: Annotated[
        str, _option("NAME|FILE", "A preset or a config.json: predicts time and memory.")
    ] = "",
    devices: Annotated[
        int, typer.Option("-p", min=1, metavar="P", help="Pipeline devices, with --model.")
    ] = 4,
    mesh: Annotated[
        str, typer.Option(metavar="AXIS=N,...", help="With --model: ranks of each device.")
    ] = "sequence=2",
    cluster: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="With --model: what it runs on.")
    ] = "h200",
    schedule: Annotated[
        str,
        _option("NAME", "With --model: one for sequences of any lengths; the last if left out."),
    ] = "",
    cache: CacheFolder = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", show_default=False, help="A page to write.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how long documents are, and what each policy would make of them.

    Text is tokenised once and kept; work that is interrupted continues where it was.
    """
    given = {"source": source, "tokenizer": tokenizer, "format": form, "field": field}
    given["chat_template"] = chat_template
    settings, sizes = data_settings(files, {name: value for name, value in given.items() if value})
    paths = source_files(settings, settings.paths)
    flags = {"--length": length, "--batch": batch, "--slice-tokens": slice_tokens}
    asked = BatchRule(*(_tokens(*flag) or size for flag, size in zip(flags.items(), sizes)))
    priced = _priced_model(model, cluster, mesh, devices, schedule) if model else None
    with show_bytes("tokenising") as progress:
        opened = open_corpus(settings, paths, cache or data_cache(), progress)
    with show_wait("comparing policies"):
        report = corpus_report(opened, asked, priced)
    _show(report, html, as_json=as_json)


def _priced_model(model: str, cluster: str, mesh: str, devices: int, schedule: str) -> PricedModel:
    """What steps are predicted for."""
    spec = find(schedule) if schedule else any_length_schedule()
    if not spec.ragged:
        raise ShapeError(
            f"{spec.name} has no order for sequences of unequal lengths",
            hint="take a schedule with the option groups (see `penstock list`)",
        )
    shape = MeshShape.parse(mesh) if mesh else MeshShape()
    if shape.replicas > 1:
        raise ShapeError(
            f"--mesh {shown(mesh)} has {shape.replicas} replicas, but a step of one is shown",
            hint="leave replicas out, and give --batch the tokens of one replica",
        )
    return PricedModel(named_model(model), read_cluster(cluster), shape, devices, spec)


def _show(report: CorpusReport, html: Path | None, *, as_json: bool) -> None:
    for line in (*report.notes, *report.policies.notes):
        note(line)
    if html is not None:
        save_text(html, report_html(report))
        note(f"wrote {html}")
    if as_json:
        emit_json(report.record())
        return
    emit(report_text(report, width()))
    head, rows = report.policy_table()
    emit_table(head, rows)
    if bars := prices_text(report, width()):
        emit(bars)


def _tokens(flag: str, text: str) -> int:
    if not text:
        return 0
    try:
        found = read_tokens(text)
    except ValueError:
        found = 0
    if found < 1:
        raise ShapeError(f"{flag} is {shown(text)}", hint="give a number of tokens, such as 64K")
    return found

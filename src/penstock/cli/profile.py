"""`penstock profile`: what this machine does with a model, and what follows for others."""

from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli._needs import need_torch
from penstock.cli._output import emit, emit_json, emit_table, note
from penstock.cli._request import AsJson
from penstock.cli._written_files import refuse_lost
from penstock.errors import ShapeError, shown

MEASURE = "measure"
DEVICES = ("auto", "cpu", "cuda")

ProfiledModel = Annotated[str, typer.Argument(metavar="MODEL", help="A preset, or a config.json.")]
ProfiledTokens = Annotated[int, typer.Option(min=16, metavar="N", help="Tokens of the sequence.")]
Slices = Annotated[
    int, typer.Option("-k", "--slices", min=1, metavar="K", help="Slices of the sequence.")
]
ProfileDevice = Annotated[str, typer.Option(metavar="|".join(DEVICES), help="What computes.")]
PrecisionFlag = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        show_default=False,
        help="bf16, fp16 or fp32; by default bf16 on a GPU and fp32 on the host.",
    ),
]
RanksOfProfile = Annotated[
    int, typer.Option(min=1, max=64, metavar="N", help="Processes whose collectives are measured.")
]
RoundsFlag = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Times that all is measured; more help on a machine that others use.",
    ),
]
StepsThatCount = Annotated[int, typer.Option(min=1, metavar="N", help="Steps that count.")]
First = Annotated[int, typer.Option(min=1, metavar="N", help="Steps before them.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", show_default=False, help="Where it goes.")
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", show_default=False, help="A page to read it."),
]
ProfilePath = Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile.")]
Cases = Annotated[
    list[str] | None,
    typer.Option(
        "--case",
        metavar="MODEL:TOKENS:SLICES:MICROBATCHES",
        show_default=False,
        help="A step to compare; repeatable. By default others of the profiled model.",
    ),
]
PipelineOfCheck = Annotated[
    int,
    typer.Option(
        "-p",
        "--devices",
        min=1,
        max=64,
        metavar="P",
        help="Devices of the pipeline, each a process; the profile has as many ranks.",
    ),
]
Within = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="SHARE",
        show_default=False,
        help="Exit with 1 where a time differs by more, the drift of the machine apart.",
    ),
]

ForceFlag = Annotated[bool, typer.Option("--force", help="Compare different machines too.")]
CellNames = Annotated[
    list[str] | None,
    typer.Option(
        "--cell",
        metavar="SWITCH+...",
        show_default=False,
        help="Switches of a cell; repeatable. By default each of them alone.",
    ),
]
HtmlPath = Annotated[Path, typer.Argument(metavar="PAGE", help="The page to write.")]


class MeasureByDefault(TyperGroup):
    """`penstock profile MODEL` is `penstock profile measure MODEL`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        helps = set(self.get_help_option_names(ctx))
        if args and args[0] not in self.commands and args[0] not in helps:
            args = [MEASURE, *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    verbs = typer.Typer(cls=MeasureByDefault)
    verbs.callback()(profile)
    verbs.command(MEASURE)(profile_measure)
    verbs.command("check")(profile_check)
    verbs.command("compare")(profile_compare)
    verbs.command("matrix")(profile_matrix)
    verbs.command("report")(profile_report)
    app.add_typer(verbs, name="profile")


def profile() -> None:
    """Measure what this machine does with a model: `penstock profile MODEL --tokens N`.

    The file that it writes makes estimates of other models, lengths and slices those of this
    machine: `penstock estimate --profile FILE`.
    """


def profile_measure(
    model: ProfiledModel,
    tokens: ProfiledTokens = 4096,
    slices: Slices = 4,
    device: ProfileDevice = "auto",
    precision: PrecisionFlag = None,
    ranks: RanksOfProfile = 1,
    rounds: RoundsFlag = 1,
    steps: StepsThatCount = 5,
    first: First = 3,
    out: Out = None,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Measure kernels by size, ops, phases, copies and memory of a model's step."""
    need_torch()
    from penstock.files import save_text
    from penstock.profiling.measure.run import profile_machine, usual_precision
    from penstock.profiling.measure.timing import Rounds
    from penstock.profiling.record import case_of, record_text
    from penstock.profiling.report import report_page
    from penstock.profiling.tables import profile_tables

    _refuse_device(device)
    refuse_lost({"--out": out, "--html": html})
    case = case_of(model, tokens, slices, precision or usual_precision(device))
    case.refuse_unlike_layers()
    often = Rounds(rounds, steps, first)
    record = profile_machine(case, device, ranks, often, note)
    if out is not None:
        save_text(out, record_text(record))
        note(f"wrote {out}")
    if html is not None:
        save_text(html, report_page(record))
        note(f"wrote {html}")
    if as_json:
        emit_json(record)
        return
    for number, (head, rows) in enumerate(profile_tables(record)):
        if number:
            emit("")
        emit_table(head, rows)


def profile_check(
    profile: ProfilePath,
    case: Cases = None,
    devices: PipelineOfCheck = 1,
    rounds: RoundsFlag = 1,
    steps: StepsThatCount = 3,
    first: First = 2,
    within: Within = None,
    as_json: AsJson = False,
) -> None:
    """Compare estimates with steps that were not profiled, in time and memory.

    Each is measured on the device of the profile. The profiled step is measured again between them:
    `drift` says how much slower the machine is than it was.
    """
    if within is not None and not within < inf:
        raise ShapeError(f"--within is {within}", hint="give a share, such as 0.05")
    need_torch()
    from penstock.cluster.profile_file import read_profile
    from penstock.profiling.case import profiled_case
    from penstock.profiling.check_cases import in_pipeline, named_case, usual_cases
    from penstock.profiling.measure.check import checked_rows, refuse_unmeasured
    from penstock.profiling.measure.timing import Rounds
    from penstock.profiling.record import told_as_mistakes
    from penstock.profiling.tables import CHECK_HEAD, check_row, row_words

    with told_as_mistakes(profile):
        record = read_profile(profile)
        profiled, often = profiled_case(record), Rounds(rounds, steps, first)
        refuse_unmeasured(record, devices)
    named = [named_case(text, profiled.precision) for text in case or ()]
    cases = [in_pipeline(each, devices) for each in named or usual_cases(profiled, devices)]
    found = []
    for row in checked_rows(profile, cases, often, devices):
        note(row_words(CHECK_HEAD, check_row(row)))
        found.append(row)
    if as_json:
        emit_json(found)
    else:
        emit_table(CHECK_HEAD, map(check_row, found))
    if within is not None and any(abs(row.get("steady_error", 0.0)) > within for row in found):
        raise typer.Exit(1)


def profile_compare(
    first: ProfilePath, second: ProfilePath, force: ForceFlag = False, as_json: AsJson = False
) -> None:
    """Compare two profiles of one machine, number by number."""
    from penstock.cluster.profile_file import read_profile
    from penstock.profiling.compare import compare_profiles, different_steps, refuse_others
    from penstock.profiling.record import told_as_mistakes
    from penstock.profiling.tables import COMPARE_HEAD, compare_row

    both = read_profile(first), read_profile(second)
    with told_as_mistakes(first, second):
        if not force:
            refuse_others(*both)
        if different := different_steps(*both):
            note(f"the profiled steps differ: {different}")
        found = [*compare_profiles(*both)]
        rows = [*map(compare_row, found)]
    if as_json:
        emit_json([each._asdict() | {"ratio": each.ratio} for each in found])
    else:
        emit_table(COMPARE_HEAD, rows)


def profile_matrix(
    model: ProfiledModel,
    tokens: ProfiledTokens = 4096,
    slices: Slices = 4,
    device: ProfileDevice = "auto",
    precision: PrecisionFlag = None,
    cell: CellNames = None,
    steps: StepsThatCount = 5,
    first: First = 3,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Run the same step with one thing switched at a time, each in a process of its own.

    Switches are recompute, offload, other-precision and plain-kernels. With --out each cell is kept
    as a line of JSON, and what the file has already is not run again.
    """
    need_torch()
    from penstock.profiling.matrix import cells_of
    from penstock.profiling.measure.matrix import matrix_rows
    from penstock.profiling.measure.run import usual_precision
    from penstock.profiling.record import case_of
    from penstock.profiling.tables import MATRIX_HEAD, matrix_row, row_words

    _refuse_device(device)
    refuse_lost({"--out": out})
    case = case_of(model, tokens, slices, precision or usual_precision(device))
    found = []
    for row in matrix_rows([*cells_of(case, cell or ())], device, steps, first, out):
        found.append(row)
        note(row_words(MATRIX_HEAD, matrix_row(row, found[0])))
    if as_json:
        emit_json(found)
    else:
        emit_table(MATRIX_HEAD, (matrix_row(row, found[0]) for row in found))


def profile_report(profile: ProfilePath, html: HtmlPath) -> None:
    """Write a page that explains a profile."""
    from penstock.cluster.profile_file import read_profile
    from penstock.files import save_text
    from penstock.profiling.record import told_as_mistakes
    from penstock.profiling.report import report_page

    record = read_profile(profile)
    with told_as_mistakes(profile):
        page = report_page(record)
    save_text(html, page)
    note(f"wrote {html}")


def _refuse_device(device: str) -> None:
    if device not in DEVICES:
        raise ShapeError(f"--device {shown(device)}", hint=f"one of: {', '.join(DEVICES)}")
    from penstock.verify.trial import refuse_device

    refuse_device(device)

"""`penstock fuse`: runs of MLPs that hardly depend on each other become one wider MLP."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.arch.config import ModelConfig
from penstock.cli._calibration import CalibrationSize, calibration_data
from penstock.cli._fusion_report import (
    HEADS,
    NOTHING_FUSED,
    block_rows,
    fusion_record,
    heat_map_svg,
    heat_map_text,
    loss_rows,
)
from penstock.cli._needs import need_torch
from penstock.cli._output import emit, emit_json, emit_table, note
from penstock.cli._progress import show_passes
from penstock.cli._request import AsJson
from penstock.errors import ShapeError
from penstock.files import save_text

if TYPE_CHECKING:
    from penstock.fusion.fusion_plan import FusionPlan
    from penstock.fusion.proposal import FusionProposal, FusionRequest, PlanLosses
    from penstock.fusion.residual_stream import Sequence


def register(app: typer.Typer) -> None:
    app.command("fuse")(fuse)


def _option(metavar: str, text: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, show_default=False, help=text)


PlanText = Annotated[
    str,
    _option("PLAN", "What is done, as 'remove=1-3 fuse=1-2 norm=last'; proposed if left out."),
]
FilesToMeasure = Annotated[
    list[str] | None,
    _option("FILES", "Text, records or arrays to measure with; Python's sources if left out."),
]
KeptAttentions = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Attentions that a proposal leaves; all if left out."),
]


def fuse(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A Hugging Face folder.")],
    plan: PlanText = "",
    to: Annotated[Path | None, _option("FOLDER", "Where the fused model is written.")] = None,
    attentions: KeptAttentions = None,
    limit: Annotated[
        float,
        typer.Option(min=0.0, metavar="X", help="Dependency up to which MLPs may be fused."),
    ] = 0.1,
    most: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Columns of a fused MLP at most.")
    ] = None,
    norm: Annotated[
        str,
        typer.Option(metavar="last|own", help="Norm of a run: of its last MLP, or each its own."),
    ] = "last",
    multiple: Annotated[
        int, typer.Option(min=1, metavar="N", help="What widths are rounded up to, with zeros.")
    ] = 1,
    data: FilesToMeasure = None,
    sequences: Annotated[int, typer.Option(min=1, metavar="N", help="Sequences of them.")] = 8,
    length: Annotated[int, typer.Option(min=2, metavar="N", help="Tokens of a sequence.")] = 1024,
    seed: Annotated[int, typer.Option(metavar="N", help="Which sequences are taken.")] = 0,
    svg: Annotated[Path | None, _option("FILE", "A picture of the dependencies.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how much blocks of a model depend on each other, and fuse runs of MLPs.

    With --attentions, those attentions go whose removal costs least. Without --to nothing is
    written. What is fused can be taken apart again by `penstock unfuse`.
    """
    need_torch()
    from penstock.fusion.fusion_plan import fused_model, read_fusion_plan
    from penstock.fusion.proposal import FusionRequest
    from penstock.model.io.huggingface import read_config

    found = read_config(model)
    given = read_fusion_plan(plan) if plan else None
    fused_model(found, given or read_fusion_plan(""))  # refused before anything is measured
    style = read_fusion_plan(f"norm={norm} multiple={multiple}")
    asked = given or FusionRequest(attentions, limit, most, style.norm, style.multiple)
    size = CalibrationSize(sequences, length, seed)
    proposal, losses = _measure(found, model, asked, calibration_data(found, model, data, size))
    note(f"measured with {size}")
    if given is None and not proposal.plan.fuse:
        note(NOTHING_FUSED)
    _draw(proposal, svg)
    if as_json:
        emit_json(fusion_record(proposal, losses))
    else:
        _show(found, proposal, losses)
    _write(model, proposal.plan, to)


def _draw(found: "FusionProposal", svg: Path | None) -> None:
    if svg is not None:
        save_text(svg, heat_map_svg(found))
        note(f"wrote {svg}")


def _measure(
    model: ModelConfig,
    folder: Path,
    asked: "FusionPlan | FusionRequest",
    data: "list[Sequence]",
) -> "tuple[FusionProposal, PlanLosses]":
    """A plan, given or proposed, and what it does to the loss."""
    from penstock.fusion.fused_folder import read_wide_weights
    from penstock.fusion.fusion_plan import FusionPlan
    from penstock.fusion.proposal import measure_plan, plan_losses, propose

    tensors = read_wide_weights(folder, model)
    with show_passes("measuring") as progress:
        if isinstance(asked, FusionPlan):
            found = measure_plan(model, tensors, data, asked, progress)
        else:
            found = propose(model, tensors, data, asked, progress)
    return found, plan_losses(model, tensors, found.plan, data)


def _show(model: ModelConfig, found: "FusionProposal", losses: "PlanLosses") -> None:
    emit(heat_map_text(found))
    emit("")
    emit_table(HEADS, block_rows(model, found))
    emit("")
    emit_table(("model", "loss", "more"), loss_rows(found.plan, losses))
    emit("")
    emit(f"--plan '{found.plan}'")


def _write(source: Path, plan: "FusionPlan", target: Path | None) -> None:
    from penstock.fusion.fused_folder import fuse_folder

    if target is None:
        return
    if not plan.fuse and not plan.remove:
        raise ShapeError(
            "the plan fuses nothing and removes nothing, so that no model is written",
            hint="raise --limit, lower --attentions, or give a --plan",
        )
    fused = fuse_folder(source, plan, target)
    note(f"wrote {target}: {fused.layers} layers, {fused.parameters:,} parameters")

"""`penstock estimate`: what a step of one layout takes on a cluster, in time and in memory."""

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli._completion import complete_names
from penstock.cli._flat import flat
from penstock.cli._numbers import assignments
from penstock.cli._output import emit, emit_json, emit_table
from penstock.cli._request import STDIN, AsJson
from penstock.errors import ShapeError, shown
from penstock.estimate.answer import answer_lines, estimate_record
from penstock.estimate.many import answer_many
from penstock.estimate.memory_classes import DeviceMemory
from penstock.estimate.price import Estimate, estimate
from penstock.estimate.reasons import number_words, reasons, size_unit
from penstock.estimate.request import layout_from

DOES_NOT_FIT = 1


def _option(text: str, *names: str, metavar: str) -> Any:
    return typer.Option(*names, metavar=metavar, show_default=False, help=text)


@dataclass(frozen=True)
class LayoutFlags:
    """A layout; what is not given is as the reference says."""

    model: Annotated[
        str | None, _option("A preset, a config.json, or its folder.", metavar="NAME|FILE")
    ] = None
    lora: Annotated[
        str | None, _option("Adapters that alone are trained.", metavar="RANK[:TARGET,...]")
    ] = None
    cluster: Annotated[
        str | None, _option("As h100:64, or a TOML file.", metavar="NAME:GPUS|FILE")
    ] = None
    tokens: Annotated[int | None, _option("Tokens of a sequence.", metavar="N")] = None
    batch_tokens: Annotated[
        int | None, _option("Tokens of all sequences of a step.", metavar="N")
    ] = None
    mesh: Annotated[
        str | None,
        _option(
            "Sizes of tensor, sequence, ring, pipeline and replicas; replicas fill the cluster.",
            metavar="AXIS=N,...",
        ),
    ] = None
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            show_default=False,
            help="A schedule of `penstock list`.",
            autocompletion=complete_names,
        ),
    ] = None
    chunks: Annotated[
        int | None, _option("Stages per device (virtual stages).", "-v", "--chunks", metavar="V")
    ] = None
    slices: Annotated[
        int | None, _option("Slices per microbatch.", "-k", "--slices", metavar="K")
    ] = None
    options: Annotated[
        list[str] | None,
        _option("An option of the schedule; repeatable.", "-o", "--option", metavar="KEY=VALUE"),
    ] = None
    layers: Annotated[
        str | None,
        _option("Layers of each stage, or even, or balanced: even.", metavar="COUNTS|HOW"),
    ] = None
    rows: Annotated[int | None, _option("Sequences of a microbatch: 1.", metavar="N")] = None
    recompute: Annotated[
        str | None,
        _option(
            "Layers that run again: none, selective, all, stages, without-attention, layers=N.",
            metavar="WHAT",
        ),
    ] = None
    shard: Annotated[
        str | None,
        _option("What copies of the weights share: none, optimizer, full.", metavar="WHAT"),
    ] = None
    attention: Annotated[
        str | None, _option("flash2, flash1, cudnn, fused-softmax or unfused.", metavar="KERNEL")
    ] = None
    fused_norm: Annotated[str | None, _option("Norms in one kernel: yes.", metavar="YES|NO")] = None
    sequence_parallel_norms: Annotated[
        str | None,
        _option("Tensor ranks hold their tokens between blocks: yes.", metavar="YES|NO"),
    ] = None
    vocabulary: Annotated[
        str | None, _option("Embedding and head in shards on all devices: no.", metavar="YES|NO")
    ] = None
    offload: Annotated[
        str | None, _option("Activations that wait on the host: none, all.", metavar="WHAT")
    ] = None
    precision: Annotated[str | None, _option("bf16, fp16 or fp32.", metavar="TYPE")] = None
    profile: Annotated[
        str | None,
        _option("Kernels as `penstock profile` has measured them.", metavar="FILE"),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """Flags that were used, with what they say."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        found = {name: value for name, value in values.items() if value not in (None, [])}
        if "options" in found:
            found["options"] = assignments("-o", found["options"])
        return found


RowsFile = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="ROWS",
        show_default=False,
        help="Many layouts: a file (`-` is stdin) with a JSON object on each line.",
    ),
]


def register(app: typer.Typer) -> None:
    app.command("estimate")(flat(estimate_one))


def estimate_one(flags: LayoutFlags, source: RowsFile = "", as_json: AsJson = False) -> None:
    """Say what a layout costs: a model on a cluster, divided by a mesh, in the order of a schedule.

    The step is simulated with times of kernels and of collectives, and the memory of each GPU is
    added up. Exits 0 where it fits and 1 where it does not. With --from there are many: an answer
    for each line, in the same order; a row that is wrong is answered with `error`.
    """
    if source:
        _estimate_many(flags, source)
        return
    found = estimate(layout_from(flags.given))
    if as_json:
        emit_json(estimate_record(found))
    else:
        _print(found)
    if not found.fits:
        raise typer.Exit(DOES_NOT_FIT)


def _estimate_many(flags: LayoutFlags, source: str) -> None:
    if flags.given:
        name = next(iter(flags.given)).replace("_", "-")
        raise ShapeError(
            f"--from has rows with their own values, but --{name} was given",
            hint=f"leave --{name} out, or put it into the rows",
        )
    if source == STDIN:  # what comes through a pipe is answered line by line, as it comes
        answers = answer_lines(map(_text, sys.stdin.buffer))
    else:
        answers = answer_many([*map(_text, _read(source).split(b"\n"))])
    for line in answers:
        emit(line)


def _text(line: bytes) -> str:
    """A line, also one that is not text: its answer says so, and the others are answered."""
    return line.decode("utf-8", "replace")


def _read(source: str) -> bytes:
    try:
        return Path(source).read_bytes()
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        raise ShapeError(
            f"cannot read {shown(source, 300)}: {reason}", hint="give a file of JSON lines"
        ) from None


def _print(found: Estimate) -> None:
    layout, mesh = found.layout, found.layout.mesh
    sizes = {"replicas": mesh.replicas, "devices": layout.pipeline, "ring": mesh.ring}
    sizes |= {"ulysses": mesh.cell.ulysses, "tensor": mesh.tensor}
    axes = " x ".join(f"{axis} {size}" for axis, size in sizes.items() if size > 1)
    emit(f"{layout.schedule} on {layout.cluster.text}: {axes or 'one rank'}")
    pieces = number_words(layout.microbatches, "microbatch", "es")
    most = "up to " * (len({*layout.groups}) > 1)
    emit(f"{pieces} of {layout.rows} x {most}{layout.tokens:,} tokens on each replica")
    emit(
        f"step {found.seconds:.3f} s, {found.tokens_per_second:,.0f} tokens/s; utilisation "
        f"{found.flops_utilisation:.1%} of the peak, {found.hardware_utilisation:.1%} with what is "
        "computed again"
    )
    emit("\n".join(f"- {reason}" for reason in reasons(found)))
    unit, worth = size_unit(max(each.total for each in found.memory))
    emit(f"\n{unit} of one rank of each device")
    emit_table(_HEAD, [_row(at, each, worth) for at, each in enumerate(found.memory)])


_HEAD = ("device", *(name.replace("_", " ") for name in DeviceMemory._fields), "total")


def _row(device: int, memory: DeviceMemory, worth: int) -> tuple[str, ...]:
    return (str(device), *(f"{size / worth:.2f}" for size in (*memory, memory.total)))

"""A model on a mesh of ranks: the options that give a simulation seconds and bytes."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import typer

from penstock.arch.config import ModelConfig
from penstock.arch.dealing import deal_sizes
from penstock.arch.limits import refuse_count
from penstock.arch.mesh_shape import MeshShape, refuse_misfits, refuse_unpriced
from penstock.cli._mesh_request import MeshRequest
from penstock.cli._request import PriceFlags
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost.cell_cost import CellCost
from penstock.cost.hardware import hardware
from penstock.cost.mesh_links import MeshLinks
from penstock.cost.stage_workload import workload_for
from penstock.cost.workload import Workload
from penstock.errors import ShapeError
from penstock.estimate.named_model import named_model
from penstock.sim.exposed import ExposedTimes, exposed_times

MOST_TOKENS = 1 << 30
MOST_SEQUENCE = 1024
"""More ranks than any run shares a slice among; what they send is worked out step by step."""
DEFAULT_TOKENS, DEFAULT_HARDWARE = 8192, "h200"


@dataclass(frozen=True)
class ModelFlags(MeshRequest):
    """What is trained, on what."""

    model: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            show_default=False,
            help="A preset, as llama3-8b, or a config.json: times are seconds, memory is bytes.",
        ),
    ] = ""
    tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N", show_default=False, help="Tokens of a microbatch with --model: 8192."
        ),
    ] = None
    hardware: Annotated[
        str, typer.Option(metavar="NAME", show_default=False, help="With --model: h200 or a100.")
    ] = ""

    profile: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="With --model: times of kernels as `penstock profile` has measured them.",
        ),
    ] = ""

    def refuse_without_model(self) -> None:
        """Refuse options that say nothing without a model."""
        given = [
            each.name for each in fields(ModelFlags) if getattr(self, each.name) != each.default
        ]
        if given and not self.model:
            raise ShapeError(
                f"--{given[0]} needs a model: how much ranks send follows from its sizes",
                hint="give one, for example --model llama3-8b",
            )
        if self.hardware and self.profile:
            raise ShapeError(
                "--hardware and --profile both say what computes", hint="leave one of them out"
            )

    def refuse_prices(self, prices: PriceFlags) -> None:
        """Refuse times and sizes that a model gives too."""
        given = [each.name for each in fields(prices) if getattr(prices, each.name) != each.default]
        if given:
            raise ShapeError(
                f"--{given[0]} and --model both give times or sizes", hint=f"leave --{given[0]} out"
            )

    @property
    def sequence(self) -> int:
        """Tokens of a microbatch."""
        return DEFAULT_TOKENS if self.tokens is None else self.tokens

    @property
    def machine(self) -> str:
        """The name of the hardware, or the file of its profile."""
        return self.hardware or self.profile or DEFAULT_HARDWARE


NO_MODEL = ModelFlags()


def simulate_on_mesh(schedule: Schedule, flags: ModelFlags) -> ExposedTimes:
    """A step of the schedule with a model, and what its communication costs."""
    if flags.profile:
        return _simulate_profiled(schedule, flags)
    config, mesh = named_model(flags.model), flags.shape
    refuse_misfits(config, mesh)
    refuse_unpriced(mesh)
    _refuse_short(flags.sequence // max(schedule.shape.slices), mesh)
    links = MeshLinks(mesh, schedule.shape.devices, hardware(flags.machine))
    step = _whole_step(schedule, links, flags.shard)
    workload = _workload(step.shape, config, flags.sequence)
    cost = CellCost.on_mesh(workload, step, links, flags.shard)
    return exposed_times(cost.workload.applied_to(step), cost)


def _simulate_profiled(schedule: Schedule, flags: ModelFlags) -> ExposedTimes:
    """As an estimate has it with a profile: slices of equal work, and the end of a step."""
    from penstock.cluster.profile_file import read_machine  # deferred: few requests have a profile
    from penstock.estimate.layout import TrainingLayout
    from penstock.estimate.price import layout_cost
    from penstock.estimate.step_schedule import step_of

    _refuse_tokens(schedule.shape, flags.sequence)
    mesh, devices = flags.shape, schedule.shape.devices
    machine = read_machine(Path(flags.profile))
    links = replace(machine.cluster.machine, gpus=mesh.ranks(devices))
    layout = TrainingLayout(
        named_model(flags.model),
        replace(machine.cluster, gpus=mesh.ranks(devices), machine=links),
        flags.sequence,
        flags.sequence * schedule.shape.microbatches * mesh.replicas,
        schedule.name,
        mesh,
        devices,
        shard=flags.shard,
        fused_norm=machine.kernels.fused,
        precision=machine.kernels.precision,  # type: ignore[arg-type]
    )
    step = step_of(schedule, layout)
    cost = layout_cost(layout, step)
    found = exposed_times(step.schedule, cost)
    whole = cost.workload.boundary_bytes(flags.sequence)  # boundaries of an estimate are parts
    scale = {"stages": whole / cost.workload.boundary_parts}
    sent = {
        axis: tuple(scale.get(axis, 1) * each for each in column)
        for axis, column in found.sent.items()
    }
    return replace(found, sent=sent)


def _whole_step(schedule: Schedule, links: MeshLinks, shard: str) -> Schedule:
    """The schedule with what a run adds to it, where ranks have parts of gradients."""
    from penstock.run.program.sharded_schedule import BufferCounts, shard_weights
    from penstock.run.program.step_end import end_step

    if links.copies * links.mesh.tensor == 1 or schedule.table.kinds & {"U", "V"}:
        return schedule
    gathered = shard_weights(schedule, BufferCounts()) if shard == "full" else schedule
    return end_step(gathered, reduced=True)


def _refuse_short(tokens: int, mesh: MeshShape) -> None:
    """Refuse more ranks than the tokens of a slice can be shared by."""
    if mesh.sequence > MOST_SEQUENCE:
        raise ShapeError(
            f"{mesh.sequence:,} ranks share the tokens of a slice",
            hint=f"set sequence to at most {MOST_SEQUENCE:,}",
        )
    if 0 < tokens < mesh.sequence:
        raise ShapeError(
            f"{mesh.sequence} ranks share {tokens} tokens of a slice",
            hint=f"set sequence to {tokens} or less, or give more --tokens",
        )


def _workload(shape: Shape, config: ModelConfig, tokens: int) -> Workload:
    """Slices as equal as can be; layers as the shape cuts them, or evenly."""
    _refuse_tokens(shape, tokens)
    config.refuse_length(tokens)
    return workload_for(shape, config, [deal_sizes(tokens, count) for count in shape.slices])


def _refuse_tokens(shape: Shape, tokens: int) -> None:
    refuse_count("--tokens", tokens, MOST_TOKENS)
    if tokens < max(shape.slices):
        raise ShapeError(
            f"{tokens} tokens cannot be cut into {max(shape.slices)} slices",
            hint=f"give --tokens {max(shape.slices)} or more",
        )

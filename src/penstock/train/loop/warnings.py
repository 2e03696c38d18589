"""What a person should know of a run that goes on nevertheless: less than was asked for is done."""

from collections.abc import Sequence

from penstock.arch.mesh_shape import MeshShape
from penstock.core.schedule import Schedule
from penstock.data import SampleStream
from penstock.run.policies.memory_room import MemoryRoom
from penstock.run.program.step_plan import StepPlan
from penstock.train.config.settings import Settings


def cautions(
    settings: Settings, schedule: Schedule, layers: Sequence[int], held_out: SampleStream | None
) -> list[str]:
    """Warnings to begin with, one line each; `layers` are those of each stage."""
    chosen = settings.pipeline.layers or schedule.shape.cut(sum(layers))
    empty = [] if chosen else _empty_stages(layers)
    silent = _nothing_to_hide(schedule, settings.mesh.shape)
    return [*silent, *empty, *_short_evaluation(settings, held_out)]


def slow_type(dtype: str, device: str) -> list[str]:
    """A type that tensor cores of a GPU do not compute in; on a processor it is the fastest."""
    if device != "cuda" or dtype == "bfloat16":
        return []
    return [
        f'warning: run.dtype is {dtype}, which a GPU computes many times slower than "bfloat16"; '
        "weights and gradients are kept in 32 bits with either"
    ]


def tight_memory(room: MemoryRoom, plan: StepPlan) -> list[str]:
    """A step that is predicted to need more than devices have free. Predictions are a hundredth or
    two off, so such a run is not refused: it says what it may end with."""
    missing = room.missing(plan)
    if not missing:
        return []
    worst = max(missing, key=lambda device: missing[device])
    free = room.devices[worst]
    needs = f"{(free + missing[worst]) / 1e9:.2f} GB on device {worst}"
    return [
        f"warning: a step is predicted to need {needs}, in addition to weights and optimizer, "
        f"where {free / 1e9:.2f} GB are free: it may run out of memory; more pipeline.slices, "
        "pipeline.recompute or pipeline.offload need less"
    ]


def _nothing_to_hide(schedule: Schedule, mesh: MeshShape) -> list[str]:
    """Braided pairs on devices of one rank, whose ops do not communicate."""
    if not schedule.pairs or mesh.cell.ranks > 1:
        return []
    return [
        f"warning: {schedule.name} braids {len(schedule.pairs)} pairs of ops to hide communication "
        "inside them, but each device is one rank and has none; set mesh.tensor to 2 or more"
    ]


def evaluation_batches(settings: Settings, held_out: SampleStream) -> int:
    """Global batches of an evaluation: those that have a sample which is held out."""
    return min(settings.evaluation.batches, -(-held_out.count // _batch_samples(settings)))


def _batch_samples(settings: Settings) -> int:
    """Samples of a global batch."""
    return settings.mesh.replicas * settings.batch.microbatches * settings.batch.rows


def _empty_stages(layers: Sequence[int]) -> list[str]:
    """Stages that only pass on what they get; who has given each its layers knows."""
    empty = [str(stage) for stage, count in enumerate(layers) if not count]
    if not empty:
        return []
    which = f"stage {empty[0]}" if len(empty) == 1 else f"stages {', '.join(empty)}"
    have = "has" if len(empty) == 1 else "have"
    return [
        f"warning: {which} of {len(layers)} {have} no layers: the model has {sum(layers)}; take "
        "fewer devices or chunks, or set pipeline.layers"
    ]


def _short_evaluation(settings: Settings, held_out: SampleStream | None) -> list[str]:
    """An evaluation that ends early, because a sample that counts twice says nothing new."""
    if held_out is None or not settings.evaluation.every:
        return []
    batches, size = settings.evaluation.batches, _batch_samples(settings)
    if held_out.count >= batches * size:
        return []
    return [
        f"warning: evaluation.batches is {batches}, which are {batches * size:,} samples, but only "
        f"{held_out.count:,} are held out: each evaluation takes these once"
    ]

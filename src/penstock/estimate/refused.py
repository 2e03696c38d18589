"""Schedules that are refused with what else a layout asks for."""

from penstock.arch.attention_cut import HEADS
from penstock.arch.layers.record import wide_bytes
from penstock.arch.lora import refuse_sharded_target
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.estimate.layout import BYTES_OF, TrainingLayout


def plain_norms(layout: TrainingLayout) -> int:
    """A norm of other systems, each step of which is a kernel, keeps its input in 32 bits and what
    it scales by the weight. A run keeps no more where its kernels are not fused."""
    if layout.fused_norm or layout.cluster.gpu.measured:
        return 0
    size = BYTES_OF[layout.precision]
    return wide_bytes(size) // size


def refuse_in_layout(layout: TrainingLayout, schedule: Schedule) -> None:
    """Refuse what a schedule and the rest of a layout cannot be together."""
    refuse_sharded_target(layout.model.lora, schedule.shape.loss != "F")
    if schedule.shape.weightless:
        _refuse_cut(layout, schedule)
    if layout.recompute.inside and schedule.table.kinds & set("NO"):
        raise ShapeError(
            f"{schedule.name} computes forwards again or moves their activations, but recompute is "
            f"{layout.recompute.text}",
            hint="leave recompute out",
        )


def _refuse_cut(layout: TrainingLayout, schedule: Schedule) -> None:
    """Refuse what is counted for whole layers alone, where attention is a stage of its own, and
    what a run refuses there."""
    problems = {
        f"recompute is {layout.recompute.text}": (
            layout.recompute.inside and not layout.attention_again,
            "take --recompute without-attention, or stages",
        ),
        "norms are not fused": (plain_norms(layout) > 0, "leave fused_norm out"),
        "the model has experts, whose loads go from layer to layer": (
            layout.model.mixture is not None,
            "take a schedule of whole layers",
        ),
        "attention is given weights, which have adapters of LoRA": (
            layout.model.lora is not None and schedule.shape.to_attention != HEADS,
            "take a schedule that gives attention queries, keys and values",
        ),
        "embedding and head are on all devices": (
            schedule.shape.shards > 0,
            "leave vocabulary out, or take a schedule of whole layers",
        ),
    }
    for problem, (found, hint) in problems.items():
        if found:
            raise ShapeError(
                f"{schedule.name} cuts layers at their attention, but {problem}", hint=hint
            )

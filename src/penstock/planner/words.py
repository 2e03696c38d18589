"""Plans in words: what they are, why they are as they are, and what the others lack."""

from penstock.estimate.layout import TrainingLayout
from penstock.estimate.price import Estimate
from penstock.estimate.reasons import reasons
from penstock.planner.advice import Plans


def plan_mesh(layout: TrainingLayout) -> str:
    """Sizes above 1, as --mesh takes them."""
    mesh = layout.mesh
    sizes = {"tensor": mesh.tensor, "sequence": mesh.sequence, "ring": mesh.ring}
    sizes |= {"pipeline": layout.pipeline, "replicas": mesh.replicas}
    return ",".join(f"{axis}={size}" for axis, size in sizes.items() if size > 1) or "one rank"


def schedule_words(layout: TrainingLayout) -> str:
    """The schedule with its flags."""
    chunks = f" -v {layout.chunks}" if layout.chunks else ""
    slices = f" -k {layout.slices}" if layout.slices else ""
    return f"{layout.schedule}{chunks}{slices}"


def option_words(layout: TrainingLayout) -> str:
    """Choices that are not the plainest, with the flags' names."""
    said = {
        "rows": layout.rows if layout.rows > 1 else "",
        "shard": layout.shard if layout.shard != "none" else "",
        "recompute": layout.recompute.text if layout.recompute.text != "none" else "",
        "offload": layout.offload if layout.offload != "none" else "",
        "vocabulary": "yes" if layout.vocabulary else "",
        "layers": ",".join(map(str, layout.layers)),
    }
    return " ".join(f"{name}={value}" for name, value in said.items() if value) or "-"


def why(answer: Plans, plan: Estimate) -> list[str]:
    """Sentences about one of the plans."""
    return [_shape(plan), *reasons(plan), *_choices(plan), *_others(answer, plan)]


def _shape(plan: Estimate) -> str:
    layout = plan.layout
    return (
        f"{layout.cluster.gpus} GPUs are {layout.mesh.replicas} replicas of "
        f"{layout.cluster.gpus // layout.mesh.replicas}: {layout.microbatches} microbatches of "
        f"{layout.rows} x {layout.tokens:,} tokens on each"
    )


def _choices(plan: Estimate) -> list[str]:
    """What is paid for what."""
    layout, told = plan.layout, []
    if layout.shard != "none":
        told.append(f"{layout.copies} copies of each weight share {_SHARED[layout.shard]}")
    if layout.recompute.text != "none":
        share = plan.hardware_utilisation / plan.flops_utilisation - 1
        told.append(
            f"forwards run again, {share:.0%} more FLOPs, and their activations need no room"
        )
    if layout.offload != "none":
        told.append("activations wait on the host, which takes no time where computing is longer")
    if (layout.slices or 1) > 1:
        told.append(
            f"{layout.slices} slices of a sequence fill the pipeline like more microbatches"
        )
    if layout.layers:
        told.append(
            f"stages have {', '.join(map(str, layout.layers))} layers: the last one has the head "
            "too, and an even split would leave the others waiting for it"
        )
    return told


_SHARED = {"optimizer": "main weights and moments", "full": "weights, gradients and moments"}


def _others(answer: Plans, plan: Estimate) -> list[str]:
    """The best plans that were seen with another size of one axis."""
    told = []
    for _, other in sorted(answer.found.best.values(), key=lambda item: item[1].seconds):
        axes = _different(plan.layout, other.layout)
        if len(axes) == 1:
            ratio = other.seconds / plan.seconds - 1
            faster = f"{abs(ratio):.1%} {'slower' if ratio > 0 else 'faster'}"
            told.append(f"with {axes[0]} the best is {schedule_words(other.layout)}, {faster}")
    return told[:6]


def _different(mine: TrainingLayout, other: TrainingLayout) -> list[str]:
    """Axes of the other one that differ, replicas apart, which fill the cluster."""
    pairs = {
        "tensor": (mine.mesh.tensor, other.mesh.tensor),
        "sequence": (mine.mesh.sequence, other.mesh.sequence),
        "ring": (mine.mesh.ring, other.mesh.ring),
        "pipeline": (mine.pipeline, other.pipeline),
    }
    return [f"{axis}={size}" for axis, (own, size) in pairs.items() if own != size]

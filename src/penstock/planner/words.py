"""Plans in words: what they are, why they are as they are, and what the others lack."""

from penstock.arch.layer_split import written_counts
from penstock.estimate.layer_sorts import layer_sorts
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.price import Estimate
from penstock.estimate.reasons import GIBI, number_words, reasons
from penstock.estimate.utilisation import token_flops, unmasked_flops
from penstock.planner.advice import Plans
from penstock.planner.search import least_seconds

LITTLE_ATTENTION = 0.1
"""Share of FLOPs below which masked pairs are not mentioned."""
RULED_OUT = 0.1
"""Share by which a plan is slower of which it is not said that it is the best of its kind: few of
them were simulated."""


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
        "layers": written_counts(layout.layers),
    }
    return " ".join(f"{name}={value}" for name, value in said.items() if value) or "-"


def page_words(plan: Estimate) -> str:
    """What a page that draws the plan is of, and why its curves are lower than its memory."""
    layout = plan.layout
    parts = (plan_mesh(layout), schedule_words(layout), option_words(layout))
    fullest = max(plan.memory, key=lambda each: each.total)
    return (
        f"{layout.model.parameters / 1e9:,.2f}B parameters on {layout.cluster.text}: "
        f"{' '.join(part for part in parts if part != '-')}. "
        f"A step takes {plan.seconds:.3f} s, {plan.tokens_per_second:,.0f} tokens/s. Curves show "
        "what ops keep for others; with weights, gradients, optimizer state and the rest, device "
        f"{plan.memory.index(fullest)} needs {fullest.total / GIBI:.1f} of "
        f"{layout.cluster.gpu.memory / GIBI:.0f} GiB."
    )


def lacking_words(plan: Estimate) -> str:
    """The memory that a plan lacks."""
    of_gpu, of_host = plan.lacks / GIBI, plan.host_lacks / GIBI
    parts = [f"{of_gpu:.1f} GiB"] * (of_gpu > 0) + [f"{of_host:,.1f} GiB of each host"] * (
        of_host > 0
    )
    return " and ".join(parts)


def why(answer: Plans, plan: Estimate) -> list[str]:
    """Sentences about one of the plans."""
    about = [_shape(plan), *reasons(plan), *_masked(plan), *_choices(plan)]
    return [*about, *_others(answer, plan)]


def _masked(plan: Estimate) -> list[str]:
    """How much of the utilisation stands for pairs that are never computed."""
    model, tokens = plan.layout.model, plan.layout.tokens
    share = unmasked_flops(model, tokens) / token_flops(model, tokens)
    if share > 1 - LITTLE_ATTENTION:
        return []
    return [
        f"utilisation counts all pairs of attention; without those that the mask hides it is "
        f"{share * plan.flops_utilisation:.1%}"
    ]


def _shape(plan: Estimate) -> str:
    layout = plan.layout
    replicas, gpus = layout.mesh.replicas, layout.cluster.gpus
    pieces = number_words(layout.microbatches, "microbatch", "es")
    each = f"{pieces} of {layout.rows} x {layout.tokens:,} tokens"
    if gpus == 1:
        return f"1 GPU computes {each}"
    shared = f"{gpus} GPUs are {number_words(replicas, 'replica')} of {gpus // replicas}"
    return f"{shared}: {each} on {'each' if replicas > 1 else 'it'}"


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
    if plan.host:
        told.append("activations wait on the host, which takes no time where computing is longer")
    if (layout.slices or 1) > 1:
        filled = layout.pipeline > 1
        gained = "fill the pipeline like more microbatches" if filled else _LESS_HELD
        told.append(f"{layout.slices} slices of a sequence {gained}")
    if layout.layers:
        alike = layer_sorts(layout.model).alike
        head = "the last one has the head too, for which the others would wait"
        reason = head if alike else "layers take unequal times, and some devices would wait"
        counts = written_counts(layout.layers)
        told.append(f"stages have {counts} layers: {reason} with an even split")
    return told


_LESS_HELD = "are computed one after another, so that less is held at once"
_SHARED = {"optimizer": "main weights and moments", "full": "weights, gradients and moments"}


def _others(answer: Plans, plan: Estimate) -> list[str]:
    """Plans with another size of one axis: the best that was simulated, or what bounds say of them
    where these alone rule them out."""
    told = []
    for kind, (_, other) in sorted(answer.found.best.items(), key=lambda item: item[1][1].seconds):
        axes = _different(plan.layout, other.layout)
        if len(axes) == 1:
            least = least_seconds(answer.found.candidates, kind)
            told.append(f"with {axes[0]} {_compared(plan, other, least)}")
    return told[:6]


def _compared(plan: Estimate, other: Estimate, least: float) -> str:
    ratio = other.seconds / plan.seconds - 1
    words = f"{abs(ratio):.1%} {'slower' if ratio > 0 else 'faster'}"
    if ratio < RULED_OUT:
        return f"the best that was simulated is {_words(other.layout)}, {words}"
    share = least / plan.seconds - 1
    return f"few plans were simulated; none can take less than {least:.3f} s ({share:+.1%})"


def _words(layout: TrainingLayout) -> str:
    options = option_words(layout)
    return schedule_words(layout) + (f" {options}" if options != "-" else "")


def _different(mine: TrainingLayout, other: TrainingLayout) -> list[str]:
    """Axes of the other one that differ, replicas apart, which fill the cluster."""
    pairs = {
        "tensor": (mine.mesh.tensor, other.mesh.tensor),
        "sequence": (mine.mesh.sequence, other.mesh.sequence),
        "ring": (mine.mesh.ring, other.mesh.ring),
        "pipeline": (mine.pipeline, other.pipeline),
    }
    return [f"{axis}={size}" for axis, (own, size) in pairs.items() if own != size]

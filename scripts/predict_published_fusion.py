"""Predict what the published model of FFN Fusion gains by each of its steps.

    python scripts/predict_published_fusion.py

The parent is Llama 3.1 405B. Its layers 66 to 115 lose their attention and its MLPs become
narrower, which leaves 253 billion weights; then 66 to 114 become four fused MLPs
(arXiv:2503.18908). All MLPs have one width here, since that of each is not in the paper. Printed is
how many times faster a forward of so many tokens gets, products, kernels and collectives one after
the other. Nothing is fitted: rates of the GPU are those of `penstock estimate`.
"""

from dataclasses import replace

from penstock.arch.config import ModelConfig
from penstock.arch.mesh_shape import MeshShape
from penstock.arch.presets import model
from penstock.cluster.read import read_cluster
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.price import layout_cost
from penstock.estimate.step_schedule import step_schedule
from penstock.fusion.fusion_plan import fused_model, read_fusion_plan

PARENT = replace(model("llama3.1-70b"), layers=126, hidden=16384, ffn=53248, heads=128)
REMOVED, RUNS = "66-115", "66-73,74-85,86-100,101-114"
WEIGHTS = 253e9
ROUNDED = 256
"""What the width of an MLP is a multiple of."""
SIZES = ((8, 64), (8, 256), (8, 1024), (8, 8192), (1, 64), (1, 8192), (1, 65536))
"""Ranks that share the matrices, and tokens."""


def narrowed(parent: ModelConfig, weights: float) -> ModelConfig:
    """A model with MLPs of one width, so that it has about so many weights without the attentions
    that go."""
    removed = fused_model(parent, read_fusion_plan(f"remove={REMOVED}"))
    columns = (removed.parameters - weights) / (3 * parent.hidden * parent.layers)
    return replace(parent, ffn=ROUNDED * round((parent.ffn - columns) / ROUNDED))


def published() -> tuple[ModelConfig, ModelConfig, ModelConfig]:
    """The parent, what is left of it, and the same fused."""
    left = narrowed(PARENT, WEIGHTS)
    plans = (f"remove={REMOVED}", f"remove={REMOVED} fuse={RUNS}")
    pruned, fused = (fused_model(left, read_fusion_plan(plan)) for plan in plans)
    return PARENT, pruned, fused


def forward_seconds(config: ModelConfig, tokens: int, ranks: int) -> float:
    """Of all layers and the head, on ranks that share the matrices."""
    cluster, mesh = read_cluster(f"h100:{ranks}"), MeshShape(tensor=ranks)
    layout = TrainingLayout(config, cluster, tokens, tokens, "1f1b", mesh)
    schedule = step_schedule(layout).schedule
    cost, forwards = layout_cost(layout, step_schedule(layout)), schedule.table.of_kinds("F")
    seconds = cost.computing(schedule) + cost.inside(schedule).total
    return float(seconds[forwards].sum())


def gains(tokens: int, ranks: int) -> tuple[float, float]:
    """How many times faster the pruned model is than its parent, and the fused one than that."""
    parent, pruned, fused = (forward_seconds(each, tokens, ranks) for each in published())
    return parent / pruned, pruned / fused


def rows() -> list[str]:
    """The table of the page."""
    found = []
    for ranks, tokens in SIZES:
        first, second = gains(tokens, ranks)
        numbers = f"{first:.2f} | {second:.3f} | {first * second:.2f}"
        found.append(f"| {ranks} | {tokens:,} | {numbers} |")
    return found


if __name__ == "__main__":
    print("| ranks | tokens | attentions and columns gone | fused | together |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    print("\n".join(rows()))

"""What `penstock fuse` says: the heat map, the blocks, the plan and the losses."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.arch.config import ModelConfig
from penstock.draw.heat_map import svg_heat_map, text_heat_map

if TYPE_CHECKING:
    from penstock.fusion.fusion_plan import FusionPlan
    from penstock.fusion.proposal import FusionProposal, PlanLosses


def block_rows(model: ModelConfig, found: "FusionProposal") -> list[tuple[str, ...]]:
    """A row for each block: what it is, what was measured of it, and what becomes of it."""
    measured, plan = found.dependencies, found.plan
    return [
        (
            str(layer),
            "attention, MLP" if model.block(layer).attention else "MLP",
            f"{float(measured.moved[layer]):.4f}",
            f"{float(measured.added[layer]):.3f}",
            f"{found.scores[layer]:+.4f}" if layer in found.scores else "-",
            _becomes(layer, plan.remove, plan.fuse),
        )
        for layer in range(model.layers)
    ]


HEADS = ("block", "made of", "input to output", "added / input", "loss without attention", "plan")


def _becomes(layer: int, remove: Sequence[int], runs: Sequence[range]) -> str:
    words = ["attention removed"] if layer in remove else []
    words += [f"fused {run.start}-{run.stop - 1}" for run in runs if layer in run]
    return ", ".join(words) or "stays"


def heat_map_text(found: "FusionProposal") -> str:
    return text_heat_map(found.dependencies.matrix.tolist())


def heat_map_svg(found: "FusionProposal") -> str:
    title = f"Dependencies between blocks, on average over {found.dependencies.tokens:,} tokens"
    return svg_heat_map(found.dependencies.matrix.tolist(), found.plan.fuse, title)


def loss_rows(plan: "FusionPlan", losses: "PlanLosses") -> list[tuple[str, str, str]]:
    """A row for each model that the plan makes, with what its loss is above that of the given one.
    What it does not do has no row: its number would be the one above it."""
    names = {"given": "as it is"}
    names |= {"removed": "attentions removed"} if plan.remove else {}
    runs = ("and each run in reverse order", "and runs fused")
    names |= dict(zip(("reversed", "fused"), runs)) if plan.fuse else {}
    return [
        (name, f"{getattr(losses, key):.4f}", f"{getattr(losses, key) - losses.given:+.4f}")
        for key, name in names.items()
    ]


NOTHING_FUSED = (
    "no MLPs are fused: that takes three layers without attention in a row, none of which depends "
    "on another by more than --limit; the last of a run stays as it is"
)


def fusion_record(found: "FusionProposal", losses: "PlanLosses") -> dict[str, Any]:
    """The same as data."""
    measured = found.dependencies
    return {
        "plan": str(found.plan),
        "remove": [*found.plan.remove],
        "fuse": [[run.start, run.stop - 1] for run in found.plan.fuse],
        "tokens": measured.tokens,
        "matrix": measured.matrix.tolist(),
        "input_to_output": measured.moved.tolist(),
        "added_over_input": measured.added.tolist(),
        "loss_without_attention": {str(layer): each for layer, each in found.scores.items()},
        "losses": vars(losses),
    }

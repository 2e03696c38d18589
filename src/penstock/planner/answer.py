"""Plans as scripts read them."""

from typing import Any

from penstock.estimate.answer import estimate_record
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.price import Estimate
from penstock.planner.advice import Plans


def plans_record(answer: Plans) -> dict[str, Any]:
    """The fields of an answer; a plan has those of an estimate, and its layout."""
    found, nearest = answer.found, answer.nearest
    return {
        "plans": [plan_record(each) for each in answer.plans],
        "nearest": None if nearest is None else plan_record(nearest) | _lacks(nearest),
        "relax": [
            {"constraint": each.name, "gain": each.gain, "text": each.text}
            for each in answer.relaxed
        ],
        "candidates": len(found.candidates),
        "simulated": found.simulated,
        "left_open": found.open,
        "left_open_seconds": found.open_seconds if found.open else None,
    }


def _lacks(plan: Estimate) -> dict[str, int]:
    return {"lacks": plan.lacks, "lacks_host": plan.host_lacks}


def plan_record(plan: Estimate) -> dict[str, Any]:
    """One plan: its layout as a row of `estimate --from`, less what all plans have in common."""
    return {"layout": layout_record(plan.layout)} | estimate_record(plan)


def layout_record(layout: TrainingLayout) -> dict[str, Any]:
    mesh = layout.mesh
    return {
        "mesh": {
            "tensor": mesh.tensor,
            "sequence": mesh.sequence,
            "ring": mesh.ring,
            "pipeline": layout.pipeline,
            "replicas": mesh.replicas,
        },
        "schedule": layout.schedule,
        "chunks": layout.chunks,
        "slices": layout.slices,
        "layers": [*layout.layers] or None,
        "rows": layout.rows,
        "recompute": layout.recompute.text,
        "shard": layout.shard,
        "vocabulary": layout.vocabulary,
        "offload": layout.offload,
    }

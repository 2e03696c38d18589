"""The stages of a plan as modules: layers, or what lies between two attentions, or attention."""

import torch

from penstock.model.stages.attention_stage import AttentionStage
from penstock.model.stages.decoder import DecoderStage
from penstock.model.stages.segment import SegmentStage
from penstock.model.stages.weights import Weights
from penstock.run.program.plan import RunPlan


def stage_of(plan: RunPlan, stage: int, device: torch.device) -> DecoderStage | SegmentStage:
    """A stage that has weights, whose values are still to come."""
    weights = Weights.empty(plan.sizes(stage), dtype=plan.dtype, main=plan.main, device=device)
    if plan.cut_at_attention:
        return SegmentStage(plan.model, weights, stage // 2)
    return DecoderStage(plan.model, plan.split[stage], weights, plan.longest)


def weightless_stages(plan: RunPlan, device: torch.device) -> dict[int, AttentionStage]:
    """Attention where it is a stage: without weights, one serves all layers on all devices."""
    if not plan.cut_at_attention:
        return {}
    like = torch.empty((), dtype=plan.dtype, device=device)
    attention = AttentionStage(plan.model, plan.longest, like)
    return dict.fromkeys(plan.schedule.shape.weightless, attention)

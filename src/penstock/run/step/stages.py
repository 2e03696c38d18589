"""The stages of a plan as modules: layers, or what lies between two attentions, or attention."""

import torch

from penstock.model.stages.attention_stage import AttentionStage
from penstock.model.stages.between_attentions import BetweenAttentionsStage
from penstock.model.stages.decoder import DecoderStage
from penstock.model.stages.weights import Weights
from penstock.run.program.plan import RunPlan


def empty_weights(plan: RunPlan, stage: int, device: torch.device) -> Weights:
    """The buffers of a stage, whose values are still to come."""
    return Weights.empty(plan.layout(stage), dtype=plan.dtype, main=plan.main, device=device)


def stage_of(
    plan: RunPlan, stage: int, device: torch.device
) -> DecoderStage | BetweenAttentionsStage:
    """A stage that has weights."""
    layout = plan.layout(stage)
    if plan.cut_at_attention:
        return BetweenAttentionsStage(plan.model, stage // 2, layout)
    like = torch.empty((), dtype=plan.dtype, device=device)
    return DecoderStage(plan.model, plan.split[stage], layout, length=plan.longest, like=like)


def weightless_stages(plan: RunPlan, device: torch.device) -> dict[int, AttentionStage]:
    """Attention where it is a stage: without weights, one serves all layers on all devices."""
    if not plan.cut_at_attention:
        return {}
    like = torch.empty((), dtype=plan.dtype, device=device)
    attention = AttentionStage(plan.model, plan.longest, like)
    return dict.fromkeys(plan.schedule.shape.weightless, attention)

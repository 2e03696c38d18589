"""The stages of a layout: layers, or what lies between two attentions, or attention."""

from collections.abc import Mapping
from typing import Any

import torch

from penstock.arch.ownership import Ownership
from penstock.model.stages.attention_stage import AttentionStage
from penstock.model.stages.between_attentions import BetweenAttentionsStage
from penstock.model.stages.decoder import DecoderStage
from penstock.model.stages.stage import Stage
from penstock.model.stages.weights import Weights
from penstock.run.program.layout import Layout


def empty_weights(
    layout: Layout, stage: int, device: torch.device, own: Ownership | None = None
) -> Weights:
    """The buffers of a stage, whose values are still to come."""
    parameters = layout.parameters(stage)
    return Weights.empty(parameters, dtype=layout.dtype, main=layout.main, device=device, own=own)


def stage_of(
    layout: Layout, stage: int, device: torch.device
) -> DecoderStage | BetweenAttentionsStage:
    """A stage that has weights."""
    model, parameters = layout.model, layout.parameters(stage)
    if layout.cut_at_attention:
        return BetweenAttentionsStage(model, stage // 2, parameters)
    like = torch.empty((), dtype=layout.dtype, device=device)
    return DecoderStage(model, layout.split[stage], parameters, length=layout.longest, like=like)


def home_views(
    stages: Mapping[int, Stage], weights: Mapping[int, Weights]
) -> dict[tuple[str, int], Any]:
    """Weights and gradients of some stages as their layers take them, by buffer and stage."""
    found: dict[tuple[str, int], Any] = {}
    for number, stage in stages.items():
        found["weight", number] = stage.views(weights[number].value)
        found["dw", number] = stage.views(weights[number].grad)
    return found


def weightless_stages(layout: Layout, device: torch.device) -> dict[int, AttentionStage]:
    """Attention where it is a stage: without weights, one serves all layers on all devices."""
    if not layout.cut_at_attention:
        return {}
    like = torch.empty((), dtype=layout.dtype, device=device)
    attention = AttentionStage(layout.model, layout.longest, like)
    return {stage: attention for stage, home in enumerate(layout.homes) if home is None}

"""The stages of a layout: layers, or what lies between two attentions, or attention."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from penstock.arch.attention_cut import HEADS
from penstock.arch.ownership import Ownership
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.stages.attention_stage import AttentionStage
from penstock.model.stages.between_attentions import BetweenAttentionsStage
from penstock.model.stages.carried_levels import carried_over
from penstock.model.stages.decoder import DecoderStage
from penstock.model.stages.local_brackets import LocalBrackets
from penstock.model.stages.projecting_attention import ProjectingAttentionStage
from penstock.model.stages.stage import Viewing
from penstock.model.stages.subsampled import SubsampledStage
from penstock.model.stages.vocabulary_shard import VocabularyShard
from penstock.model.stages.weights import Weights
from penstock.run.execute.boundary import ModelBoundary
from penstock.run.program.layout import Layout


def empty_weights(
    layout: Layout, stage: int, device: torch.device, own: Ownership | None = None
) -> Weights:
    """The buffers of a stage, whose values are still to come; all of it is owned unless something
    else is said."""
    parameters = own.layout if own else layout.parameters(stage)
    return Weights.empty(parameters, dtype=layout.dtype, main=layout.main, device=device, own=own)


Weighted = DecoderStage | BetweenAttentionsStage | VocabularyShard
"""What has weights: a stage, or a shard of the vocabulary."""


def stages_on(
    layout: Layout, stages: Iterable[int], device: torch.device, cell: Cell = SINGLE_RANK
) -> dict[int, Weighted]:
    """Stages of one device, by number."""
    local = LocalBrackets(layout.local_pairs)
    return {stage: stage_of(layout, stage, device, cell, local) for stage in stages}


def stage_of(
    layout: Layout,
    stage: int,
    device: torch.device,
    cell: Cell = SINGLE_RANK,
    local: LocalBrackets | None = None,
) -> Weighted:
    """A stage that has weights, or the vocabulary shard of a number behind all stages; `local` is
    what it shares with others of its device."""
    index, replica = tensor_index(cell), cell.experts.index if cell.experts else 0
    model, parameters = layout.model_of(index), layout.parameters(stage, index, replica)
    if stage >= layout.stages:
        return VocabularyShard(model, parameters, cell)
    if layout.cut_at_attention:
        return BetweenAttentionsStage(model, stage // 2, parameters, cell, layout.to_attention)
    like = torch.empty((), dtype=layout.dtype, device=device)
    sizes: dict[str, Any] = {"length": layout.longest, "like": like, "cell": cell}
    place = (model, layout.split[stage], parameters)
    if model.subsampling is None:
        return DecoderStage(*place, **sizes, first=stage == 0)
    return SubsampledStage(*place, **sizes, local=local)


def tensor_index(cell: Cell) -> int:
    """The number of a rank among those that share the matrices."""
    return cell.tensor.index if cell.tensor else 0


def boundary_of(layout: Layout, device: torch.device, cell: Cell = SINGLE_RANK) -> ModelBoundary:
    """What a rank sends to the next stage and receives from it."""
    crossings = layout.crossings(tensor_index(cell))
    carried = tuple(
        carried_over(layout.model, layers.stop, layout.dtype, cell.tokens, layout.local_pairs)
        for layers in (layout.split[:-1] if layout.model.subsampling else ())
    )
    sizes = (crossings, layout.model.hidden, cell.tokens, layout.dtype, device)
    return ModelBoundary(*sizes, carried)


def home_views(
    stages: Mapping[int, Viewing], weights: Mapping[int, Weights]
) -> dict[tuple[str, int], Any]:
    """Weights and gradients of some stages as their layers take them, by buffer and stage."""
    found: dict[tuple[str, int], Any] = {}
    for number, stage in stages.items():
        found["weight", number] = stage.views(weights[number].value, weights[number].frozen)
        found["dw", number] = stage.views(weights[number].grad)
    return found


def weightless_stages(
    layout: Layout, device: torch.device, cell: Cell = SINGLE_RANK
) -> dict[int, AttentionStage | ProjectingAttentionStage]:
    """Attention where it is a stage: it owns no weights, so one serves all layers that attend in
    the same way, on all devices."""
    if not layout.cut_at_attention:
        return {}
    like = torch.empty((), dtype=layout.dtype, device=device)
    model = layout.model_of(tensor_index(cell))
    made: dict[Any, AttentionStage | ProjectingAttentionStage] = {}
    found = {}
    for stage in (stage for stage, home in enumerate(layout.homes) if home is None):
        layer = stage // 2
        alike = (model.attention_rule(layer), model.with_rope_of(layer))
        if alike not in made:
            place = (layer, layout.longest, like, cell)
            if layout.to_attention == HEADS:
                made[alike] = AttentionStage(model, *place)
            else:
                made[alike] = ProjectingAttentionStage(model, layout.model, *place)
        found[stage] = made[alike]
    return found

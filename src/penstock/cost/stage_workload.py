"""The workload of a schedule's stages: whole layers, or what is between two attentions."""

from collections.abc import Sequence

from penstock.arch.block_rules import refuse_cut
from penstock.arch.config import ModelConfig
from penstock.arch.layer_split import split_layers
from penstock.core.shape import Shape
from penstock.cost.cut_workload import CutWorkload
from penstock.cost.kept_workload import KeptWorkload
from penstock.cost.workload import Workload


def workload_for(
    shape: Shape,
    model: ModelConfig,
    lengths: Sequence[Sequence[int]],
    layers: Sequence[int] = (),
) -> Workload:
    """What a model is to the stages of a shape, with so many tokens in each slice of each
    microbatch; without `layers` as the shape cuts them, or evenly."""
    counts = tuple(layers) or shape.cut(model.layers)
    split = tuple(map(len, split_layers(model.layers, shape.stages, counts)))
    cut = tuple(map(tuple, lengths))
    if shape.weightless:
        refuse_cut(model)
        return CutWorkload(model, cut, split, to_attention=shape.to_attention)
    return (Workload if model.subsampling is None else KeptWorkload)(model, cut, split)

"""What the layers and the ends of a model take, measured in layers: what a balanced split evens
out.

All candidates with as many devices share their splits, so that bounds are worked out once for all.
The times are those of one rank with whole sequences: where ranks share matrices, layers and head
become smaller alike.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from penstock.arch.config import ModelConfig
from penstock.cluster.cluster import Cluster
from penstock.errors import PenstockError
from penstock.estimate.layer_sorts import layer_sorts
from penstock.estimate.layout import TrainingLayout
from penstock.planner.piece_times import PieceTimes


class ModelLoads(NamedTuple):
    """Forward and backward, in layers of the first sort."""

    layers: tuple[float, ...]
    """Of each layer."""
    embedding: float = 0.0
    head: float = 0.0


def model_loads(
    model: ModelConfig, cluster: Cluster, tokens: int, kernels: dict[str, Any]
) -> ModelLoads:
    """The loads of a model; equal layers alone where a rank cannot have it whole."""
    with suppress(PenstockError):
        alone = TrainingLayout(model, replace(cluster, gpus=1), tokens, tokens, "", **kernels)
        piece = PieceTimes(alone, (tokens,))
        passes = [piece.computing[kind] for kind in "FB"]
        seconds = np.sum([each.of_layers for each in passes], axis=0)
        _, embedding, head = map(sum, zip(*(each.others for each in passes)))
        layer = float(seconds[0])
        each = [float(other) / layer for other in seconds]
        loads = tuple(each[sort] for sort in layer_sorts(model).of_layer)
        return ModelLoads(loads, max(0.0, embedding / layer), max(0.0, head / layer))
    return ModelLoads((1.0,) * model.layers)

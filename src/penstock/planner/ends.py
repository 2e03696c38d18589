"""What the ends of a model take, measured in its layers: what a balanced split evens out.

All candidates with as many devices share their splits, so that bounds are worked out once for all.
The times are those of one rank with whole sequences: where ranks share matrices, layers and head
become smaller alike.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from penstock.arch.config import ModelConfig
from penstock.cluster.cluster import Cluster
from penstock.errors import PenstockError
from penstock.estimate.layout import TrainingLayout
from penstock.planner.piece_times import PieceTimes


def ends_in_layers(
    model: ModelConfig, cluster: Cluster, tokens: int, kernels: dict[str, Any]
) -> tuple[float, float]:
    """Embedding and head, forward and backward; nothing where a rank cannot have them whole."""
    with suppress(PenstockError):
        alone = TrainingLayout(model, replace(cluster, gpus=1), tokens, tokens, "", **kernels)
        piece = PieceTimes(alone, (tokens,))
        passes = [piece.computing[kind].sum for kind in "FB"]
        layer, _, embedding, head = map(sum, zip(*passes))
        return max(0.0, embedding / layer), max(0.0, head / layer)
    return 0.0, 0.0

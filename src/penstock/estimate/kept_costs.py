"""Cost models of ranks, kept for all layouts that differ in their schedule or in what copies share.

What an op computes, and sends to ranks of its cell, depends on the rank's part of the model, on its
slices and on the layers of its stage. The order of ops and who shares the state do not matter.
"""

from functools import lru_cache
from typing import NamedTuple

from penstock.arch.config import ModelConfig
from penstock.arch.mesh_shape import MeshShape
from penstock.cluster.cluster import Cluster
from penstock.cluster.gpu import AttentionKernel, Precision
from penstock.estimate.layout import Recompute, TrainingLayout
from penstock.estimate.layout_cost import LayoutCost

KEPT_COSTS = 1024
"""Requests whose cost models are kept; a search has some hundreds."""


class CostRequest(NamedTuple):
    """All of a layout that the cost of a rank's ops depends on, but for slices and layers."""

    model: ModelConfig
    cluster: Cluster
    mesh: MeshShape
    pipeline: int
    rows: int
    recompute: Recompute
    attention: AttentionKernel
    fused_norm: bool
    precision: Precision


def cost_request(layout: TrainingLayout) -> CostRequest:
    """What layouts have in common whose ranks are alike."""
    return CostRequest(*(getattr(layout, name) for name in CostRequest._fields))


KeptCosts = dict[tuple[tuple[int, ...], int, int, tuple[int, ...]], LayoutCost]
"""By slices of a microbatch, microbatches, stages, and their layers unless these are even."""


@lru_cache(maxsize=KEPT_COSTS)
def kept_costs(request: CostRequest, ends: tuple[int, str, str]) -> KeptCosts:
    """Where to keep the cost models of a rank; `ends` are devices, and where embedding and head
    are."""
    return {}

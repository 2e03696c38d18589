"""How busy the experts of a model are in a microbatch, and the loss that keeps them equally busy.

    C   choices that fell on each expert, P its probabilities, summed over all tokens and layers
    R   tokens x layers, which is sum(C) / per_token
    auxiliary loss = experts x sum over experts of (C / R) (P / R)

This is the loss that transformers adds (Switch Transformer, arXiv:2101.03961, equations 4 to 6,
with the means of all layers together). A product of sums over layers is no sum over layers: no
layer knows its gradient before all layers have routed all tokens of the microbatch. That gradient
is the same for every token of every layer, one number for each expert: its slope.
"""

import torch
from torch import Tensor

from penstock.arch.mixture import ExpertMixture
from penstock.model.layers.expert_rows import count_choices
from penstock.model.layers.router import Routed


def no_loads(mixture: ExpertMixture, device: torch.device) -> Tensor:
    """Loads [2, experts] before any layer: choices, and sums of probabilities, in 64 bits."""
    return torch.zeros(2, mixture.experts, dtype=torch.float64, device=device)


def loads_of(routed: Routed) -> Tensor:
    """What one layer adds."""
    experts = routed.probabilities.shape[-1]
    counts = count_choices(routed.chosen, experts).to(torch.float64)
    return torch.stack((counts, routed.probabilities.sum(0, dtype=torch.float64)))


def auxiliary_loss(loads: Tensor, mixture: ExpertMixture) -> Tensor:
    """Of the loads of all layers."""
    return (slope_of(loads, mixture) * loads[1]).sum()


def slope_of(loads: Tensor, mixture: ExpertMixture) -> Tensor:
    """The gradient of the auxiliary loss with respect to one probability of each expert."""
    rows = loads[0].sum() / mixture.per_token
    return loads[0] * (mixture.experts / rows.square())

"""Experts as everybody writes them: all of them on all tokens, with a weight of zero where a token
has not chosen one. Nothing is sorted, grouped or sent, so nothing of that can be wrong."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from penstock.arch.config import ModelConfig
from penstock.arch.layers.expert_mlp import MATRIX_NAMES
from penstock.arch.mixture import ExpertMixture


class ReferenceExpert(nn.Module):
    """silu(gate) x up, and down again, called as the family calls them."""

    def __init__(self, config: ModelConfig, mixture: ExpertMixture) -> None:
        super().__init__()
        self.names = MATRIX_NAMES[mixture.family]
        sizes = ((config.hidden, config.ffn), (config.hidden, config.ffn))
        for name, (inputs, outputs) in zip(self.names, (*sizes, (config.ffn, config.hidden))):
            self.add_module(name, nn.Linear(inputs, outputs, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        gate, up, down = (self.get_submodule(name) for name in self.names)
        out: Tensor = down(functional.silu(gate(x)) * up(x))
        return out


class ReferenceExperts(nn.Module):
    """A router, and the weighted sum of its experts."""

    scores: Tensor
    """Probabilities of experts in the last call."""

    def __init__(self, config: ModelConfig, mixture: ExpertMixture) -> None:
        super().__init__()
        self.mixture = mixture
        self.gate = nn.Linear(config.hidden, mixture.experts, bias=False)
        self.experts = nn.ModuleList(
            ReferenceExpert(config, mixture) for _ in range(mixture.experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        self.scores = self.gate(x).softmax(-1)
        weights, chosen = self.scores.topk(self.mixture.per_token)
        if self.mixture.renormalised:
            weights = weights / weights.sum(-1, keepdim=True)
        spread = torch.zeros_like(self.scores).scatter(-1, chosen, weights)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return (outputs * spread.unsqueeze(-2)).sum(-1)


def scores_in(decoder: nn.Module) -> list[Tensor]:
    """Probabilities of experts that the layers of a decoder had in its last call."""
    experts = (each for each in decoder.modules() if isinstance(each, ReferenceExperts))
    return [each.scores.flatten(0, -2) for each in experts]


def balance_loss(mixture: ExpertMixture, scores: Sequence[Tensor]) -> Tensor:
    """The auxiliary loss of all layers and documents of a microbatch: experts x the sum over
    experts of the mean number of choices times the mean probability."""
    rows = torch.cat([*scores])
    chosen = rows.topk(mixture.per_token).indices
    choices = functional.one_hot(chosen, mixture.experts).sum(1).to(rows)
    return mixture.experts * (choices.mean(0) * rows.mean(0)).sum()


def weighted_balance(
    mixture: ExpertMixture | None, scores: Iterable[Tensor], labels: float
) -> Tensor | float:
    """What the auxiliary loss adds to the loss of a batch, of a microbatch that has such a part of
    its labels."""
    if mixture is None:
        return 0.0
    return balance_loss(mixture, [*scores]) * (mixture.balance * labels)

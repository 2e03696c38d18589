"""The router of a layer with experts: which experts a token goes to, and what each one weighs.

    p = softmax(x W^T)          over all experts, in 32 bits at least
    q = the largest few of p    and with them the experts that are chosen
    w = q / sum(q)              or q itself, as the family has it

Choosing has no gradient. What a chosen expert weighs has one, and the auxiliary loss has one for
every expert (model/layers/expert_loads.py).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.mixture import ExpertMixture
from penstock.model.layers.linear import Queue, linear, linear_backward
from penstock.model.layers.lm_head import wide_type
from penstock.model.layers.views import Matrix


class Routed(NamedTuple):
    """Where the tokens of a slice go."""

    probabilities: Tensor
    """Of all experts [tokens, experts], in 32 bits at least."""
    chosen: Tensor
    """Numbers of experts [tokens, per_token], the largest probability first."""
    weights: Tensor
    """What each of them weighs."""


class Router:
    """The arithmetic of a router; it owns no tensor."""

    def __init__(self, mixture: ExpertMixture) -> None:
        self.mixture = mixture

    def forward(self, router: Matrix, x: Tensor) -> Routed:
        """The experts of every token of x [tokens, hidden]."""
        return self.choose(linear(router, x))

    def choose(self, scores: Tensor) -> Routed:
        """The experts of tokens with these scores [tokens, experts]."""
        probabilities = torch.softmax(scores, -1, dtype=wide_type(scores))
        largest, chosen = probabilities.topk(self.mixture.per_token, dim=-1)
        if self.mixture.renormalised:
            return Routed(probabilities, chosen, largest / largest.sum(-1, keepdim=True))
        return Routed(probabilities, chosen, largest)

    def backward(
        self,
        router: Matrix,
        gradient: Matrix,
        x: Tensor,
        routed: Routed,
        d_weights: Tensor,
        slope: Tensor | None,
        queue: Queue,
    ) -> Tensor:
        """The gradient of x, of that of the weights; `slope` is the gradient of the auxiliary loss
        with respect to the probability that any token has for each expert."""
        d = self.of_scores(routed, d_weights, slope).to(x.dtype)
        return linear_backward(router, gradient, x, d, queue)

    def of_scores(self, routed: Routed, d_weights: Tensor, slope: Tensor | None) -> Tensor:
        """The gradient of the scores."""
        d = torch.zeros_like(routed.probabilities)
        d.scatter_(-1, routed.chosen, self._of_largest(routed, d_weights))
        if slope is not None:
            d += slope.to(d)
        return d.sub_((d * routed.probabilities).sum(-1, keepdim=True)).mul_(routed.probabilities)

    def _of_largest(self, routed: Routed, d_weights: Tensor) -> Tensor:
        """The gradient of the probabilities that are chosen."""
        if not self.mixture.renormalised:
            return d_weights
        total = routed.probabilities.gather(-1, routed.chosen).sum(-1, keepdim=True)
        return (d_weights - (d_weights * routed.weights).sum(-1, keepdim=True)) / total

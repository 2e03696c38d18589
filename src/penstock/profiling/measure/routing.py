"""What experts cost beside their products: tokens choose them, and rows go there and back.

The same calls as in a layer (model/layers/expert_mlp.py), with everything else left out.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.cluster.measured import ROUTING_KERNELS
from penstock.model.layers.expert_rows import ExpertRows, rows_by_expert
from penstock.model.layers.router import Routed, Router

MovingCalls = dict[tuple[str, str], Callable[[], object]]
"""By kernel and pass."""


def routing_calls(random: Callable[..., Tensor], model: ModelConfig, tokens: int) -> MovingCalls:
    """Forward and backward of so many tokens, with tensors that `random` makes."""
    mixture = model.mixture
    assert mixture is not None, "only layers with experts choose some"
    router, rows = Router(mixture), tokens * mixture.per_token
    x, outputs = random(tokens, model.hidden), random(rows, model.hidden)
    scores = random(tokens, mixture.experts)
    inside, scratch = (random(rows, model.width) for _ in range(2))
    routed = router.choose(scores)
    sorted_rows = rows_by_expert(routed.chosen, mixture.experts)

    def forward() -> Tensor:
        chosen = router.choose(scores)
        given = rows_by_expert(chosen.chosen, mixture.experts)
        given.of_tokens(x)
        _ = inside * _weights(given, chosen, x)
        return given.add_up(outputs, tokens)

    def inputs() -> Tensor:
        weights = _weights(sorted_rows, routed, x)
        sorted_rows.of_tokens(x)
        sorted_rows.of_tokens(x)
        d_weights = (inside * inside).sum(1, dtype=torch.float32)
        _ = inside * weights
        torch.mul(inside, weights, out=scratch)
        of_choices = sorted_rows.to_choices(d_weights, routed.weights)
        router.of_scores(routed, of_choices, None).to(x.dtype)
        return sorted_rows.add_up(outputs, tokens).add_(x)

    return dict(zip(ROUTING_KERNELS, (forward, inputs)))


def _weights(rows: ExpertRows, routed: Routed, x: Tensor) -> Tensor:
    """What each row weighs."""
    return rows.of_choices(routed.weights).to(x.dtype).unsqueeze(1)

"""The MLPs of a layer with experts: each token goes through a few of them, with a weight for each.

    z = sum over the experts of a token of  down(w silu(gate(x)) x up(x))

What an expert weighs is multiplied inside, where fewer features are. So rows of tokens and their
weights are all that an expert is given, and its output need not be kept for the gradient of the
weight: d w = <down^T dz, silu(gate(x)) x up(x)>. Other ranks may own some of the experts
(expert_exchange.py).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.dealing import deal
from penstock.arch.layers.expert_mlp import expert_names, router_name
from penstock.arch.mixture import ExpertMixture
from penstock.model.layers.expert_exchange import ExpertVisit, from_experts, plan_visit, to_experts
from penstock.model.layers.expert_products import (
    PendingGroups,
    grouped_product,
    grouped_product_backward,
)
from penstock.model.layers.expert_rows import ExpertRows, rows_by_expert
from penstock.model.layers.linear import Queue
from penstock.model.layers.router import Routed, Router
from penstock.model.layers.swiglu import swiglu, swiglu_backward
from penstock.model.layers.views import Matrix, Views
from penstock.model.parallel.group import RankGroup, Work


class ExpertWeights(NamedTuple):
    """Weights of a router and of the experts that are here, or their gradients."""

    router: Matrix
    gate_up: Matrix
    """Gate and up of one expert behind those of another: [experts x 2 f, hidden]."""
    down: Matrix
    """[experts x hidden, f]"""


class RowsSaved(NamedTuple):
    """What the backward needs of the rows that the experts here were given."""

    visit: ExpertVisit
    x: Tensor | None
    """[rows, hidden], where they came from other ranks; else they are taken from the input."""
    weights: Tensor
    """What each row weighs [rows, 1]."""
    gate_up: Tensor
    """[rows, 2 f]"""
    gated: Tensor


class ExpertSaved(NamedTuple):
    """What the backward needs, beside the input."""

    routed: Routed
    rows: ExpertRows
    given: RowsSaved


class RoutedMlp:
    """The arithmetic of a router and its experts; it owns no tensor."""

    def __init__(self, mixture: ExpertMixture, group: RankGroup | None = None) -> None:
        """`group` are the ranks that share the experts, where there are several."""
        self.mixture, self.group, self.router = mixture, group, Router(mixture)
        index, of = (group.index, group.size) if group else (0, 1)
        self.own = deal(mixture.experts, index, of)

    def views(self, views: Views, prefix: str) -> ExpertWeights:
        inwards, back = expert_names(self.mixture, self.own)
        return ExpertWeights(
            views.matrix(prefix + router_name(self.mixture)),
            views.matrix(*(prefix + name for name in inwards)),
            views.matrix(*(prefix + name for name in back)),
        )

    def forward(self, weights: ExpertWeights, x: Tensor) -> Work[tuple[Tensor, ExpertSaved]]:
        """The output of x [tokens, hidden]."""
        routed = self.router.forward(weights.router, x)
        rows = rows_by_expert(routed.chosen, self.mixture.experts)
        visit = yield from plan_visit(self.group, rows.ends)
        weighed = rows.of_choices(routed.weights).to(x.dtype).unsqueeze(1)
        given = yield from to_experts(self.group, visit, rows.of_tokens(x))
        weighed = yield from to_experts(self.group, visit, weighed)
        out, saved = self._experts(weights, visit, given, weighed)
        back = yield from from_experts(self.group, visit, out)
        return rows.add_up(back, len(x)), ExpertSaved(routed, rows, saved)

    def backward(
        self,
        weights: ExpertWeights,
        gradients: ExpertWeights,
        saved: ExpertSaved,
        x: Tensor,
        dz: Tensor,
        slope: Tensor | None,
        queue: Queue,
    ) -> Work[Tensor]:
        """The gradient of x, of that of the output and of the auxiliary loss."""
        routed, rows, given = saved
        d_out = yield from to_experts(self.group, given.visit, rows.of_tokens(dz))
        held = rows.of_tokens(x) if given.x is None else given.x
        d_rows, d_weighed = self._experts_backward(weights, gradients, given, held, d_out, queue)
        d_rows = yield from from_experts(self.group, given.visit, d_rows)
        d_weighed = yield from from_experts(self.group, given.visit, d_weighed)
        d_weights = rows.to_choices(d_weighed.to(routed.weights.dtype), routed.weights)
        dx = rows.add_up(d_rows, len(x))
        router, d_router = weights.router, gradients.router
        d = self.router.backward(router, d_router, x, routed, d_weights, slope, queue)
        return dx.add_(d)

    def _experts(
        self, weights: ExpertWeights, visit: ExpertVisit, x: Tensor, weighed: Tensor
    ) -> tuple[Tensor, RowsSaved]:
        """The output of rows, each of its expert."""
        gate_up = grouped_product(x, self._stacked(weights.gate_up), visit.ends)
        gated = swiglu(gate_up)
        out = grouped_product(gated * weighed, self._stacked(weights.down), visit.ends)
        kept = None if visit.order is None else x
        return out, RowsSaved(visit, kept, weighed, gate_up, gated)

    def _experts_backward(
        self,
        weights: ExpertWeights,
        gradients: ExpertWeights,
        saved: RowsSaved,
        x: Tensor,
        d_out: Tensor,
        queue: Queue,
    ) -> tuple[Tensor, Tensor]:
        """The gradients of rows that experts were given, and of what they weigh."""
        ends, gated = saved.visit.ends, saved.gated
        d = grouped_product_backward(d_out, self._stacked(weights.down), ends)
        d_weighed = (d * gated).sum(1, dtype=torch.promote_types(d.dtype, torch.float32))
        if len(gradients.down.weight):  # else it is frozen
            queue.append(PendingGroups(weights.down.number, gated * saved.weights, d_out, ends))
        d_gate_up = swiglu_backward(saved.gate_up, d.mul_(saved.weights))
        if len(gradients.gate_up.weight):
            queue.append(PendingGroups(weights.gate_up.number, x, d_gate_up, ends))
        return grouped_product_backward(d_gate_up, self._stacked(weights.gate_up), ends), d_weighed

    def _stacked(self, matrix: Matrix) -> Tensor:
        """[experts, outputs, inputs]"""
        return matrix.weight.view(len(self.own), -1, matrix.weight.shape[1])

"""RMSNorm of queries, or keys, over all heads at once.

Ranks that share the matrices have some of the heads each, so the mean square of a token is a sum
over ranks, and so is the product that the backward subtracts. Both are one number for each token.
Where several ranks have the same key heads, each of them counts for its part: in the forward they
have the same numbers, in the backward each has a part of the gradient.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.model.layers.norm import RmsNorm
from penstock.model.parallel.group import RankGroup, Work


class NormSpan(NamedTuple):
    """What a norm is over."""

    width: int
    """Elements on all ranks together."""
    holders: int
    """Ranks that have the same elements as this one."""


class ProjectionNorm:
    """The norms of two projections, of which each rank has some columns: [tokens, own columns]."""

    def __init__(self, norm: RmsNorm, group: RankGroup | None) -> None:
        self.norm, self.group = norm, group

    def forward(
        self, weights: list[Tensor], spans: list[NormSpan], x: list[Tensor]
    ) -> Work[list[tuple[Tensor, Tensor]]]:
        """Each normed, and its r."""
        if self.group is None:
            return [self.norm.forward(weight, each) for weight, each in zip(weights, x)]
        wide = [each.to(_wide(each)) for each in x]
        squares = [(each * each).sum(-1, keepdim=True) for each in wide]
        for square, span in zip(squares, spans):
            square.div_(span.holders)
        total = torch.stack(squares)
        yield self.group.add_up(total)
        found = []
        for weight, each, square, span in zip(weights, wide, total, spans):
            r = torch.rsqrt(square / span.width + self.norm.epsilon)
            found.append(((each * r).to(x[0].dtype).mul_(self.norm.factor(weight)), r))
        return found

    def backward(
        self,
        weights: list[Tensor],
        gradients: list[Tensor],
        spans: list[NormSpan],
        saved: list[tuple[Tensor, Tensor]],
        dy: list[Tensor],
    ) -> Work[None]:
        """Turn the gradients of what came out into those of what went in, where they lie."""
        if self.group is None:
            for weight, gradient, (x, r), d in zip(weights, gradients, saved, dy):
                d.copy_(self.norm.backward(weight, gradient, x, r, d))
            return
        products = []
        for weight, gradient, (x, r), d in zip(weights, gradients, saved, dy):
            product = d * (x * r)
            if len(gradient):
                gradient.add_(product.sum(0))
            products.append(product.mul_(self.norm.factor(weight)).sum(-1, keepdim=True))
        total = torch.stack(products)
        yield self.group.add_up(total)
        for weight, (x, r), d, product, span in zip(weights, saved, dy, total, spans):
            inner = (d * self.norm.factor(weight)).to(r.dtype)
            share = product / (span.width * span.holders)
            d.copy_(inner.addcmul_(x * r, share, value=-1).mul_(r))


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)

"""RMSNorm with a backward of its own, which keeps the input and one number per token.

y = x r w,  r = 1 / sqrt(mean(x^2) + epsilon)

Some models store w - 1, so that small weights, which a decay draws to 0, are norms near 1.
"""

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.kernels.choice import fusible


class RmsNorm:
    """The norms of a model, which differ in their weights alone."""

    def __init__(self, config: ModelConfig) -> None:
        self.epsilon, self.adds_one = config.norm_epsilon, config.norm_adds_one

    def forward(self, weight: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return norm(self.factor(weight), x, self.epsilon)

    def backward(
        self,
        weight: Tensor,
        gradient: Tensor,
        x: Tensor,
        r: Tensor,
        dy: Tensor,
        residual: Tensor | None = None,
    ) -> Tensor:
        return norm_backward(self.factor(weight), gradient, x, r, dy, residual)

    def factor(self, weight: Tensor) -> Tensor:
        """What normed elements are multiplied by; in 16 bits, 1 + w would lose most of w."""
        if not self.adds_one:
            return weight
        return weight.to(torch.promote_types(weight.dtype, torch.float32)) + 1


def norm(weight: Tensor, x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The normed input and r, over the last dimension; r is at least in 32 bits."""
    if fusible(x):
        from penstock.model.kernels.norm import fused_norm  # deferred: needs Triton

        return fused_norm(weight, x, epsilon)
    return plain_norm(weight, x, epsilon)


def norm_backward(
    weight: Tensor,
    gradient: Tensor,
    x: Tensor,
    r: Tensor,
    dy: Tensor,
    residual: Tensor | None = None,
) -> Tensor:
    """The gradient of the input, plus `residual`, which came past the norm; that of the weight is
    added to `gradient` at once, unless it is frozen."""
    if fusible(x):
        from penstock.model.kernels.norm import fused_norm_backward  # deferred: needs Triton

        return fused_norm_backward(weight, gradient, x, r, dy, residual)
    dx = plain_norm_backward(weight, gradient, x, r, dy)
    return dx if residual is None else dx.add_(residual)


def plain_norm(weight: Tensor, x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """By PyTorch's own kernels."""
    wide = x if x.dtype == torch.float64 else x.float()
    r = torch.rsqrt((wide * wide).mean(-1, keepdim=True).add_(epsilon))
    return (wide * r).to(x.dtype).mul_(weight), r


def plain_norm_backward(
    weight: Tensor, gradient: Tensor, x: Tensor, r: Tensor, dy: Tensor
) -> Tensor:
    """By PyTorch's own kernels.

    dx = r (u - n mean(u n)),  n = x r,  u = dy w
    """
    normed = x * r
    product = dy * normed
    if len(gradient):
        gradient.add_(product.flatten(0, -2).sum(0))
    share = product.mul_(weight).mean(-1, keepdim=True)
    inner = (dy * weight).to(r.dtype).addcmul_(normed, share, value=-1)
    return inner.mul_(r).to(x.dtype)

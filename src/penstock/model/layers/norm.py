"""RMSNorm with a backward of its own, which keeps the input and one number per token.

y = x r w,  r = 1 / sqrt(mean(x^2) + epsilon)
"""

import torch
from torch import Tensor

from penstock.model.kernels.choice import fusible


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
    added to `gradient` at once."""
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
    gradient.add_(product.flatten(0, -2).sum(0))
    share = product.mul_(weight).mean(-1, keepdim=True)
    inner = (dy * weight).to(r.dtype).addcmul_(normed, share, value=-1)
    return inner.mul_(r).to(x.dtype)

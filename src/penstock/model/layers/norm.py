"""RMSNorm with a backward of its own, which keeps the input and one number per token.

y = x r w,  r = 1 / sqrt(mean(x^2) + epsilon)
"""

import torch
from torch import Tensor


def norm(weight: Tensor, x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The normed input and r, over the last dimension; r is at least in 32 bits."""
    wide = x if x.dtype == torch.float64 else x.float()
    r = torch.rsqrt((wide * wide).mean(-1, keepdim=True).add_(epsilon))
    return (wide * r).to(x.dtype).mul_(weight), r


def norm_backward(weight: Tensor, gradient: Tensor, x: Tensor, r: Tensor, dy: Tensor) -> Tensor:
    """The gradient of the input; that of the weight is added to `gradient` at once.

    dx = r (u - n mean(u n)),  n = x r,  u = dy w
    """
    normed = x * r
    product = dy * normed
    gradient.add_(product.flatten(0, -2).sum(0))
    share = product.mul_(weight).mean(-1, keepdim=True)
    inner = (dy * weight).to(r.dtype).addcmul_(normed, share, value=-1)
    return inner.mul_(r).to(x.dtype)

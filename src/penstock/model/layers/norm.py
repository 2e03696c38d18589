"""RMSNorm with a backward of its own, which keeps the input and one number per token.

y = x r w,  r = 1 / sqrt(mean(x^2) + epsilon)
"""

import torch
from torch import Tensor

from penstock.model.stages.weights import Vector


def norm(weight: Vector, x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The normed input and r, over the last dimension; r is at least in 32 bits."""
    wide = x if x.dtype == torch.float64 else x.float()
    r = torch.rsqrt((wide * wide).mean(-1, keepdim=True).add_(epsilon))
    return (wide * r).to(x.dtype).mul_(weight.value), r


def norm_backward(weight: Vector, x: Tensor, r: Tensor, dy: Tensor) -> Tensor:
    """The gradient of the input; that of the weight is added at once.

    dx = r (u - n mean(u n)),  n = x r,  u = dy w
    """
    normed = x * r
    product = dy * normed
    weight.grad.add_(product.flatten(0, -2).sum(0))
    share = product.mul_(weight.value).mean(-1, keepdim=True)
    inner = (dy * weight.value).to(r.dtype).addcmul_(normed, share, value=-1)
    return inner.mul_(r).to(x.dtype)

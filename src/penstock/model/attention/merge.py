"""Join the attention of the same queries to two sets of keys, in place.

With out = sum(e^s v) / sum(e^s) and lse = log sum(e^s), the softmax over both sets weighs the two
outputs by their sums:

    out = out + w (other - out)
    w = e^other_lse / (e^lse + e^other_lse) = sigmoid(other_lse - lse)

Every query must have a key in both sets: a kernel reports lse 0 for a query without one.
"""

import torch
from torch import Tensor


def merge(out: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> None:
    """Make `out` and `lse` those of both sets; shapes [rows, heads, n, d] and [rows, heads, n].

    The log-sum-exp may have a last dimension of 1, as some kernels give it.
    """
    weight = torch.sub(other_lse, lse).sigmoid_()
    column = weight if weight.dim() == out.dim() else weight.unsqueeze(-1)
    out.lerp_(other, column.to(out.dtype))  # one pass, which in 16 bits rounds once more
    torch.logaddexp(lse, other_lse, out=lse)

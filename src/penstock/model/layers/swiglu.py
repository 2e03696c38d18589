"""The gated MLP's inner function: silu(gate) x up, on gate and up side by side."""

import torch
from torch import Tensor
from torch.nn import functional

_aten = torch.ops.aten


def swiglu(both: Tensor) -> Tensor:
    """[tokens, 2 f] -> [tokens, f]"""
    first, second = both.chunk(2, dim=-1)
    return functional.silu(first).mul_(second)


def swiglu_backward(both: Tensor, d: Tensor) -> Tensor:
    """The gradient of both halves, side by side as the weight gradient wants it.

    Everything is computed where it stays: these are the largest tensors of a layer.
    """
    first, second = both.chunk(2, dim=-1)
    out = torch.empty_like(both)
    d_first, d_second = out.chunk(2, dim=-1)
    _aten.silu.out(first, out=d_second).mul_(d)
    torch.mul(d, second, out=d_first)
    _aten.silu_backward.grad_input(d_first, first, grad_input=d_first)
    return out

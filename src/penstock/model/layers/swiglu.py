"""The gated MLP's inner function: silu(gate) x up, on gate and up side by side; or with GELU, by
its tanh approximation, in place of silu."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from penstock.arch.layers.gated_mlp import GELU_TANH, SILU
from penstock.model.kernels.choice import fusible

_aten = torch.ops.aten


def swiglu(both: Tensor) -> Tensor:
    """[tokens, 2 f] -> [tokens, f]"""
    if fusible(both):
        from penstock.model.kernels.swiglu import fused_swiglu  # deferred: needs Triton

        return fused_swiglu(both)
    return plain_swiglu(both)


def swiglu_backward(both: Tensor, d: Tensor) -> Tensor:
    """The gradient of both halves, side by side as the weight gradient wants it."""
    if fusible(both):
        from penstock.model.kernels.swiglu import fused_swiglu_backward  # deferred: needs Triton

        return fused_swiglu_backward(both, d)
    return plain_swiglu_backward(both, d)


def geglu(both: Tensor) -> Tensor:
    """As `swiglu`, with GELU."""
    first, second = both.chunk(2, dim=-1)
    return functional.gelu(first, approximate="tanh").mul_(second)


def geglu_backward(both: Tensor, d: Tensor) -> Tensor:
    """As `swiglu_backward`, with GELU."""
    first, second = both.chunk(2, dim=-1)
    out = torch.empty_like(both)
    d_first, d_second = out.chunk(2, dim=-1)
    _aten.gelu.out(first, approximate="tanh", out=d_second).mul_(d)
    torch.mul(d, second, out=d_first)
    _aten.gelu_backward.grad_input(d_first, first, approximate="tanh", grad_input=d_first)
    return out


def plain_swiglu(both: Tensor) -> Tensor:
    """By PyTorch's own kernels."""
    first, second = both.chunk(2, dim=-1)
    return functional.silu(first).mul_(second)


def plain_swiglu_backward(both: Tensor, d: Tensor) -> Tensor:
    """By PyTorch's own kernels.

    Everything is computed where it stays: these are the largest tensors of a layer.
    """
    first, second = both.chunk(2, dim=-1)
    out = torch.empty_like(both)
    d_first, d_second = out.chunk(2, dim=-1)
    _aten.silu.out(first, out=d_second).mul_(d)
    torch.mul(d, second, out=d_first)
    _aten.silu_backward.grad_input(d_first, first, grad_input=d_first)
    return out


class GateFunction(NamedTuple):
    """How a gate is applied, and the way back."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]


GATES: Mapping[str, GateFunction] = {
    SILU: GateFunction(swiglu, swiglu_backward),
    GELU_TANH: GateFunction(geglu, geglu_backward),
}
"""By the name of the activation in a model."""

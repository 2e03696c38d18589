"""The products of LoRA's adapters, beside those of the matrices that have them.

    u = scale x A^T     y += u B^T        forward
    v = scale dy B      dx += v A         input gradient
    dB += dy^T u        dA += v^T x       weight gradient, which may be put off

What lies between A and B has as many columns as the rank. It is computed again for the backward and
not kept: that costs one product of the rank, and no layer has to know whether it has adapters.
"""

import torch
from torch import Tensor

from penstock.model.layers.views import Adapters

WeightProduct = tuple[int, Tensor, Tensor]
"""A weight gradient dy^T x: the number of its matrix, x and dy."""


def add_adapters(adapters: Adapters, x: Tensor, y: Tensor) -> None:
    """Add to y [tokens, outputs] what adapters make of x [tokens, inputs]."""
    u = _inner(adapters, x)
    for up in adapters.ups:
        y[:, up.outputs].addmm_(u[:, up.between], up.weight.t())


def adapters_backward(adapters: Adapters, x: Tensor, dy: Tensor, dx: Tensor) -> list[WeightProduct]:
    """Add to the gradient of the input; returns what those of both matrices are made of."""
    u, v = _inner(adapters, x), dy.new_empty((len(dy), len(adapters.down)))
    for up in adapters.ups:
        torch.mm(dy[:, up.outputs], up.weight, out=v[:, up.between])
    dx.addmm_(v.mul_(adapters.scale), adapters.down)
    ups = [(up.number, u[:, up.between], dy[:, up.outputs]) for up in adapters.ups]
    return [(adapters.number, x, v), *ups]


def _inner(adapters: Adapters, x: Tensor) -> Tensor:
    """What lies between A and B."""
    return (x @ adapters.down.t()).mul_(adapters.scale)

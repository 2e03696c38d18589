"""Products of rows with the matrix of their expert, for all experts of a layer at once.

On a GPU one kernel works on all groups in 16 bits, and the host need not know how large they are:
it would wait for the device, and launch a kernel for each expert later than it could run. Elsewhere
each expert's rows are multiplied by themselves.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from penstock.arch.layers.expert_mlp import one_gradient_kernel
from penstock.model.kernels.choice import fusible
from penstock.model.layers.linear import add_product

NARROW = 2
"""Bytes of a number in 16 bits."""
_ALIGNED = 16
"""Bytes of which a row of a grouped operand is a multiple."""


class PendingGroups(NamedTuple):
    """Weight gradients that are still to be computed: dy^T x of each expert's rows, for the
    matrices of that number, stacked."""

    number: int
    x: Tensor
    dy: Tensor
    ends: Tensor

    def add_to(self, gradient: Tensor) -> None:
        """Add the products to [experts x outputs, inputs]. PyTorch's kernel for all experts would
        round each sum to the type of its operands, and gradients have 32 bits."""
        if self._few_rows(gradient) and fusible(self.x):
            from penstock.model.kernels.expert_gradient import (  # deferred: needs Triton
                add_expert_gradients,
            )

            add_expert_gradients(gradient, self.x, self.dy, self.ends)
            return
        stacked = gradient.view(len(self.ends), -1, gradient.shape[1])
        for expert, rows in _groups(self.ends):
            add_product(stacked[expert], self.x[rows], self.dy[rows])

    def _few_rows(self, gradient: Tensor) -> bool:
        """Whether experts have so few rows in 16 bits that one kernel for all is faster."""
        narrow = self.x.itemsize == NARROW and gradient.dtype == torch.float32
        rows, sides = len(self.x) / len(self.ends), (self.dy.shape[1], self.x.shape[1])
        return narrow and one_gradient_kernel(rows, *sides)


def grouped_product(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """x [rows, inputs] with weights [experts, outputs, inputs] -> [rows, outputs]"""
    if _one_kernel(x, weights):
        return functional.grouped_mm(x, weights.transpose(1, 2), offs=ends)
    out = x.new_empty(len(x), weights.shape[1])
    for expert, rows in _groups(ends):
        torch.mm(x[rows], weights[expert].t(), out=out[rows])
    return out


def grouped_product_backward(dy: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """The gradient of x: dy [rows, outputs] -> [rows, inputs]"""
    if _one_kernel(dy, weights):
        return functional.grouped_mm(dy, weights, offs=ends)
    dx = dy.new_empty(len(dy), weights.shape[2])
    for expert, rows in _groups(ends):
        torch.mm(dy[rows], weights[expert], out=dx[rows])
    return dx


def _one_kernel(*operands: Tensor) -> bool:
    """Whether a kernel takes all groups of these operands."""
    return all(
        x.is_cuda and x.dtype == torch.bfloat16 and x.shape[-1] * x.itemsize % _ALIGNED == 0
        for x in operands
    )


def _groups(ends: Tensor) -> Iterator[tuple[int, slice]]:
    """Experts that have rows, and where these lie."""
    start = 0
    for expert, end in enumerate(ends.tolist()):
        if end > start:
            yield expert, slice(start, end)
        start = end

"""Linear layers whose backward comes in two parts: the input's gradient now, the weight's when
the schedule says so.

The first part leaves (matrix, input, output gradient) in a queue; the second works the queue off,
first in, first out. A full backward runs the one and then the other, so that it adds up the same
numbers in the same order as a split one.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.model.stages.weights import Matrix


class Due(NamedTuple):
    """A weight gradient that is still to be computed."""

    matrix: Matrix
    x: Tensor
    dy: Tensor


Queue = list[Due]


def linear(matrix: Matrix, x: Tensor) -> Tensor:
    """x [tokens, inputs] -> [tokens, outputs]"""
    if matrix.bias is None:
        return x @ matrix.value.t()
    return torch.addmm(matrix.bias, x, matrix.value.t())


def linear_onto(matrix: Matrix, x: Tensor, residual: Tensor) -> Tensor:
    """The residual plus the product, without a pass of its own for the sum."""
    return torch.addmm(residual, x, matrix.value.t())


def linear_backward(matrix: Matrix, x: Tensor, dy: Tensor, queue: Queue) -> Tensor:
    """The gradient of the input; that of the matrix goes into the queue, that of the bias is added
    at once, for it costs next to nothing."""
    queue.append(Due(matrix, x, dy))
    if matrix.bias_grad is not None:
        matrix.bias_grad.add_(dy.sum(0))
    return dy @ matrix.value


def work_off(queue: Queue) -> None:
    """Add the weight gradients that are due, and let go of each one's tensors at once."""
    queue.reverse()
    while queue:
        add_product(*queue.pop())


def add_product(matrix: Matrix, x: Tensor, dy: Tensor) -> None:
    """Add dy^T x to the gradient of a matrix, in the gradient's type."""
    if matrix.grad.dtype == x.dtype:
        matrix.grad.addmm_(dy.t(), x)
    elif x.is_cuda:
        torch.addmm(matrix.grad, dy.t(), x, out_dtype=matrix.grad.dtype, out=matrix.grad)
    else:
        matrix.grad.add_(dy.t() @ x)

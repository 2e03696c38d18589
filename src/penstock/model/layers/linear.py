"""Linear layers whose backward comes in two parts: the input's gradient now, the weight's when
the schedule says so.

The first part leaves (number of the matrix, input, output gradient) in a queue; the second works
the queue off, first in, first out. A full backward runs the one and then the other, so that it adds
up the same numbers in the same order as a split one.

A matrix may be frozen: then nothing of it is queued, but the products of its adapters
(adapters.py).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from penstock.model.layers.adapters import adapters_backward, add_adapters
from penstock.model.layers.views import Matrix
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import ALL_TOKENS, TokenShares, wait_for


class PendingProduct(NamedTuple):
    """A weight gradient that is still to be computed: dy^T x, for the matrix of that number."""

    number: int
    x: Tensor
    dy: Tensor

    def add_to(self, gradient: Tensor) -> None:
        add_product(gradient, self.x, self.dy)


class PutOff(Protocol):
    """A part of a weight gradient that is still to be computed."""

    @property
    def number(self) -> int:
        """Of the matrix, among those of its stage."""
        ...

    def add_to(self, gradient: Tensor) -> None:
        """Add it to the gradient of that matrix."""
        ...


class Queue(list[PutOff]):
    """Products that wait, in order."""

    def __init__(self, work_off: "Callable[[Queue], None] | None" = None) -> None:
        """`work_off` is how products are added as soon as there is time; None: they are put off."""
        super().__init__()
        self._work_off = work_off

    def meanwhile(self) -> None:
        """Do what can be done while other ranks are waited for, or between two layers."""
        if self._work_off is not None:
            self._work_off(self)


def linear(matrix: Matrix, x: Tensor) -> Tensor:
    """x [tokens, inputs] -> [tokens, outputs]"""
    if matrix.bias is None:
        y = x @ matrix.weight.t()
    else:
        y = torch.addmm(matrix.bias, x, matrix.weight.t())
    if matrix.adapters is not None:
        add_adapters(matrix.adapters, x, y)
    return y


def linear_add(
    matrix: Matrix, x: Tensor, residual: Tensor, tokens: TokenShares = ALL_TOKENS
) -> Work[Tensor]:
    """The residual plus the product; of ranks that share the matrix by its inputs, each has a part
    of the product."""
    if tokens.ranks == 1:
        y = torch.addmm(residual, x, matrix.weight.t())  # no pass of its own for the sum
        if matrix.adapters is not None:
            add_adapters(matrix.adapters, x, y)
        return y
    total, pending = tokens.add_up(linear(matrix, x))
    yield from wait_for(pending)
    return total.add_(residual)


def linear_backward(
    matrix: Matrix, gradient: Matrix, x: Tensor, dy: Tensor, queue: Queue
) -> Tensor:
    """The gradient of the input; that of the matrix goes into the queue, that of the bias is added
    at once, for it costs next to nothing."""
    if len(gradient.weight):
        queue.append(PendingProduct(matrix.number, x, dy))
    if gradient.bias is not None and len(gradient.bias):
        gradient.bias.add_(dy.sum(0))
    dx = dy @ matrix.weight
    if matrix.adapters is not None:
        pending = adapters_backward(matrix.adapters, x, dy, dx)
        queue.extend(PendingProduct(*each) for each in pending)
    return dx


def linear_backward_at_once(matrix: Matrix, gradient: Matrix, x: Tensor, dy: Tensor) -> None:
    """x becomes its own gradient, and those of the matrix and its adapters are added there and
    then: for an output gradient that is too large to wait."""
    add_product(gradient.weight, x, dy)
    if matrix.adapters is None:
        torch.mm(dy, matrix.weight, out=x)
        return
    assert gradient.adapters is not None
    dx, own = dy @ matrix.weight, gradient.adapters
    products = adapters_backward(matrix.adapters, x, dy, dx)
    for to, (_, inner, outer) in zip((own.down, *(up.weight for up in own.ups)), products):
        add_product(to, inner, outer)
    x.copy_(dx)


def add_products(gradients: Sequence[Tensor], queue: Queue) -> None:
    """Add what is pending to the gradients of a stage's matrices, and let go of each one's tensors
    at once."""
    queue.reverse()
    while queue:
        product = queue.pop()
        product.add_to(gradients[product.number])
        del product


def add_product(gradient: Tensor, x: Tensor, dy: Tensor) -> None:
    """Add dy^T x to the gradient of a matrix, in the gradient's type; nothing where the matrix is
    frozen."""
    if not len(gradient):
        return
    if gradient.dtype == x.dtype:
        gradient.addmm_(dy.t(), x)
    elif x.is_cuda:
        torch.addmm(gradient, dy.t(), x, out_dtype=gradient.dtype, out=gradient)
    else:
        gradient.add_(dy.t() @ x)

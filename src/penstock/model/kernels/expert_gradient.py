"""Weight gradients of all experts of a layer in one kernel: dy^T x of each expert's rows.

Experts have rows of any number, which the device alone knows. A kernel for each expert needs the
numbers on the host, which then waits for the device, and of few rows it is launched later than it
could run. Here a program has a tile of one expert's gradient and goes through the rows of that
expert. Sums have 32 bits and are added to the gradient once, in one order: the same bits always.
"""

import torch
import triton
from torch import Tensor
from triton import language as tl

OUTPUTS, INPUTS, ROWS = 256, 128, 64
"""Sides of a tile, and rows that are multiplied at a time."""
WARPS, STAGES = 8, 3


@triton.jit
def _expert_gradients(
    x, dy, ends, gradient, x_stride, dy_stride, outputs, inputs,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    tile, expert = tl.program_id(0), tl.program_id(1)
    start = tl.load(ends + expert - 1, mask=expert > 0, other=0)
    end = tl.load(ends + expert)
    if end > start:
        beside = tl.cdiv(inputs, block_n)
        m = (tile // beside) * block_m + tl.arange(0, block_m)
        n = (tile % beside) * block_n + tl.arange(0, block_n)
        of_m, of_n = m < outputs, n < inputs
        total = tl.zeros([block_m, block_n], dtype=tl.float32)
        for first in range(start, end, block_k):
            k = first + tl.arange(0, block_k)
            inside = (k < end)[:, None]
            row = k.to(tl.int64)[:, None]
            d = tl.load(dy + row * dy_stride + m[None, :], mask=inside & of_m[None, :], other=0.0)
            v = tl.load(x + row * x_stride + n[None, :], mask=inside & of_n[None, :], other=0.0)
            total = tl.dot(tl.trans(d), v, total)
        at = (expert.to(tl.int64) * outputs + m)[:, None] * inputs + n[None, :]
        there = of_m[:, None] & of_n[None, :]
        before = tl.load(gradient + at, mask=there, other=0.0)
        tl.store(gradient + at, before + total, mask=there)


def add_expert_gradients(gradient: Tensor, x: Tensor, dy: Tensor, ends: Tensor) -> None:
    """As `penstock.model.layers.expert_products.PendingGroups.add_to`, in 32 bits."""
    assert gradient.dtype == torch.float32
    assert gradient.is_contiguous()
    experts, inputs = len(ends), gradient.shape[1]
    outputs = len(gradient) // experts
    tiles = triton.cdiv(outputs, OUTPUTS) * triton.cdiv(inputs, INPUTS)
    _expert_gradients[(tiles, experts)](
        x, dy, ends, gradient, x.stride(0), dy.stride(0), outputs, inputs,
        block_m=OUTPUTS, block_n=INPUTS, block_k=ROWS, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip

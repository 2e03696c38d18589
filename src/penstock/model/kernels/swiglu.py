"""The gated MLP's inner function in one pass forward and one pass backward."""

import torch
import triton
from torch import Tensor
from triton import language as tl

ELEMENTS = 1024
"""Elements of a row that one program takes."""


@triton.jit
def _swiglu_forward(both, out, width, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    inside = at < width
    first = tl.load(both + row * 2 * width + at, mask=inside).to(tl.float32)
    second = tl.load(both + (row * 2 + 1) * width + at, mask=inside).to(tl.float32)
    gated = first * tl.sigmoid(first) * second
    tl.store(out + row * width + at, gated.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _swiglu_backward(both, d, out, width, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    inside = at < width
    first = tl.load(both + row * 2 * width + at, mask=inside).to(tl.float32)
    second = tl.load(both + (row * 2 + 1) * width + at, mask=inside).to(tl.float32)
    g = tl.load(d + row * width + at, mask=inside).to(tl.float32)
    gate = tl.sigmoid(first)
    d_first = g * second * gate * (1 + first * (1 - gate))
    d_second = g * first * gate
    tl.store(out + row * 2 * width + at, d_first.to(out.dtype.element_ty), mask=inside)
    tl.store(out + (row * 2 + 1) * width + at, d_second.to(out.dtype.element_ty), mask=inside)


def fused_swiglu(both: Tensor) -> Tensor:
    """As `penstock.model.layers.swiglu.swiglu`."""
    rows, width = both.shape[0], both.shape[1] // 2
    out = both.new_empty((rows, width))
    _swiglu_forward[(rows, triton.cdiv(width, ELEMENTS))](both, out, width, block=ELEMENTS)
    return out


def fused_swiglu_backward(both: Tensor, d: Tensor) -> Tensor:
    """As `penstock.model.layers.swiglu.swiglu_backward`."""
    rows, width = d.shape
    out = torch.empty_like(both)
    _swiglu_backward[(rows, triton.cdiv(width, ELEMENTS))](both, d, out, width, block=ELEMENTS)
    return out

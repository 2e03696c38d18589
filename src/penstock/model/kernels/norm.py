"""RMSNorm in one pass forward and one pass backward, the weight's gradient included.

Each program of the backward goes through some rows and keeps their sum for the weight in registers;
the sums of all programs are added up behind it in one order, so that the result is always the
same. Where queries and keys are normed, rows are heads: token by token, side by side.
"""

import torch
import triton
from torch import Tensor
from triton import language as tl

PROGRAMS_PER_CORE = 8
"""Programs of the backward on each multiprocessor: enough to hide the time that loads take."""


@triton.jit
def _norm_forward(
    x, weight, y, r, stride, heads, size, epsilon,
    block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    inside = at < size
    start = (row // heads) * stride + (row % heads) * size
    values = tl.load(x + start + at, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 0) / size + epsilon)
    normed = (values * scale).to(y.dtype.element_ty).to(tl.float32)
    out = normed * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * size + at, out.to(y.dtype.element_ty), mask=inside)
    tl.store(r + row, scale)


@triton.jit(do_not_specialize=["rows", "share"])
def _norm_backward(
    x, weight, r, dy, residual, dx, sums,
    x_stride, dy_stride, heads, rows, size, share,
    adds: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    at = tl.arange(0, block)
    inside = at < size
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros([block], dtype=tl.float32)
    for number in range(program * share, tl.minimum((program + 1) * share, rows)):
        row = tl.cast(number, tl.int64)
        token, head = row // heads, (row % heads) * size
        values = tl.load(x + token * x_stride + head + at, mask=inside, other=0.0).to(tl.float32)
        d = tl.load(dy + token * dy_stride + head + at, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(r + row)
        normed = values * scale
        product = d * normed
        total += product
        mean = tl.sum(product * w, 0) / size
        out = (d * w - normed * mean) * scale
        if adds:
            out += tl.load(residual + row * size + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx + row * size + at, out.to(dx.dtype.element_ty), mask=inside)
    tl.store(sums + program * size + at, total, mask=inside)


def fused_norm(weight: Tensor, x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """As `penstock.model.layers.norm.norm`."""
    size, (heads, stride) = x.shape[-1], _rows_of(x)
    y = x.new_empty(x.shape)
    r = x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
    _norm_forward[(r.numel(),)](
        x, weight, y, r, stride, heads, size, epsilon, **_shape(size)
    )  # fmt: skip
    return y, r


def fused_norm_backward(
    weight: Tensor, gradient: Tensor, x: Tensor, r: Tensor, dy: Tensor, residual: Tensor | None
) -> Tensor:
    """As `penstock.model.layers.norm.norm_backward`."""
    size, rows = x.shape[-1], r.numel()
    (heads, x_stride), (_, dy_stride) = _rows_of(x), _rows_of(dy)
    cores = torch.cuda.get_device_properties(x.device).multi_processor_count
    share = triton.cdiv(rows, min(rows, cores * PROGRAMS_PER_CORE))
    programs = triton.cdiv(rows, share)
    dx, sums = x.new_empty(x.shape), x.new_empty((programs, size), dtype=torch.float32)
    _norm_backward[(programs,)](
        x, weight, r, dy, residual, dx, sums, x_stride, dy_stride, heads, rows, size, share,
        adds=residual is not None, **_shape(size),
    )  # fmt: skip
    if len(gradient):
        gradient.add_(sums.sum(0))
    return dx


def _shape(size: int) -> dict[str, int]:
    """How a row lies over the threads of a program."""
    block = triton.next_power_of_2(size)
    return {"block": block, "num_warps": min(max(block // 512, 1), 16)}


def _rows_of(x: Tensor) -> tuple[int, int]:
    """Rows that lie side by side in a token, and the distance of two tokens."""
    if x.dim() == 2:
        return 1, x.stride(0)
    _, tokens, heads, size = x.shape
    assert x.stride(2) == size
    assert len(x) == 1 or x.stride(0) == tokens * x.stride(1)
    return heads, x.stride(1)

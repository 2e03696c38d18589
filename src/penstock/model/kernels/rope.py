"""The turn of queries and keys by their positions, from where they lie to where they are wanted.

Queries, keys and values come out of one product, side by side. A turn in place leaves them there,
where attention reads them with strides; the gradients that attention gives are turned back and put
side by side again in one pass.
"""

import triton
from torch import Tensor
from triton import language as tl


@triton.jit(do_not_specialize=["tokens", "table_row"])
def _turn(
    x, out, cos, sin, tokens, heads, sign, table_row,
    x_row, x_token, x_head, out_row, out_token, out_head,
    half: tl.constexpr, half_block: tl.constexpr, some: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64)
    row, token = number // tokens, number % tokens
    head = (tl.program_id(1) * some + tl.arange(0, some))[:, None]
    at = tl.arange(0, half_block)[None, :]
    inside = (head < heads) & (at < half)
    turned = (row * table_row + token) * 2 * half + at
    c = tl.load(cos + turned, mask=at < half).to(tl.float32)
    s = tl.load(sin + turned, mask=at < half).to(tl.float32) * sign
    source = x + row * x_row + token * x_token + head * x_head + at
    first = tl.load(source, mask=inside).to(tl.float32)
    second = tl.load(source + half, mask=inside).to(tl.float32)
    target = out + row * out_row + token * out_token + head * out_head + at
    tl.store(target, (first * c - second * s).to(out.dtype.element_ty), mask=inside)
    tl.store(target + half, (second * c + first * s).to(out.dtype.element_ty), mask=inside)


def turn_into(out: Tensor, x: Tensor, cos: Tensor, sin: Tensor, sign: float = 1.0) -> None:
    """Turn `x` [rows, tokens, heads, head_size] into `out`, which may be `x` itself; with `sign` -1
    back. The tables are [tokens, 1, head_size], or [rows, tokens, 1, head_size]."""
    rows, tokens, heads, size = x.shape
    table_row = tokens if cos.dim() == 4 else 0
    block = min(triton.next_power_of_2(heads), 16)
    _turn[(rows * tokens, triton.cdiv(heads, block))](
        x, out, cos, sin, tokens, heads, sign, table_row, *x.stride()[:3], *out.stride()[:3],
        half=size // 2, half_block=triton.next_power_of_2(size // 2), some=block,
    )  # fmt: skip

"""Which kernels compute an attention: one table, read from the top.

Measured on one H200 (32 heads of 128, 8 for keys, 32K tokens, bfloat16): FlashAttention 4 takes 13
ms forward and 36 ms backward, cuDNN 13 and 41, PyTorch's own flash more than 25 and 69. So that is
their order, where each serves. FlashAttention 4 is a package of its own and may be missing. cuDNN
prepares a plan for every new shape, which documents of many lengths would make it do all the time;
those are left to flash.

On one core of a CPU a triangle costs nearly as much as its square, up to 512 queries; cut down to
128 it takes 2/3 of the time. Keys in blocks of 512 leave their gradients in the cache.
"""

from functools import cache, partial

import torch
from torch import Tensor

from penstock.arch.attention_rule import PLAIN_ATTENTION, AttentionRule
from penstock.arch.layers.attention import HOST_KEYS, HOST_SQUARE, LONG_WINDOW
from penstock.errors import RunError
from penstock.model.attention import aten, flash4, plain
from penstock.model.attention.back_end import BackEnd
from penstock.model.attention.folded import folded_backward, folded_forward
from penstock.model.attention.groups import document_groups
from penstock.model.attention.one_call import OneCall
from penstock.model.attention.packed import Packed
from penstock.model.attention.piece import Piece
from penstock.model.attention.tiled import UNCUT, Tiled
from penstock.model.attention.window_parts import parts

FULL_PRECISION = (torch.float32, torch.float64)
LOW_PRECISION = (torch.bfloat16, torch.float16)
SHORTEST = 64
"""Tokens of a slice or a past below which cuDNN's plans are not asked for."""
PLAIN_PRODUCTS = "plain"
PLAIN_KEYS = 8192
"""Most keys of a rectangle in the backward of plain products."""


def _on_cpu(q: Tensor, piece: Piece) -> bool:
    return q.device.type == "cpu" and q.dtype in FULL_PRECISION


def _on_cpu_low(q: Tensor, piece: Piece) -> bool:
    return q.device.type == "cpu" and q.dtype in LOW_PRECISION


def _with_flash4(q: Tensor, piece: Piece) -> bool:
    """On the architectures for which the package has both directions: Hopper and Blackwell."""
    return (
        _on_gpu_low(q, largest_head=128)
        and torch.cuda.get_device_capability(q.device)[0] in (9, 10)
        and _flash_enabled()
        and flash4.has_flash4()
    )


def _with_flash4_whole(q: Tensor, piece: Piece) -> bool:
    return _with_flash4(q, piece) and not piece.packed


def _with_cudnn(q: Tensor, piece: Piece) -> bool:
    return (
        _on_gpu_low(q, largest_head=128)
        and torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
        and torch.backends.cudnn.is_available()  # type: ignore[no-untyped-call]
        and not piece.packed
        and piece.end - piece.start >= SHORTEST
        and (piece.start == 0 or piece.start >= SHORTEST)
    )


def _with_flash(q: Tensor, piece: Piece) -> bool:
    return _flash_enabled() and _on_gpu_low(q, largest_head=256)


def _flash_enabled() -> bool:
    enabled: bool = torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]
    return enabled


def _on_gpu_low(q: Tensor, largest_head: int) -> bool:
    """Whether the fused kernels of a GPU know the type, the head size and the architecture."""
    size = q.shape[-1]
    return (
        q.device.type == "cuda"
        and q.dtype in LOW_PRECISION
        and size % 8 == 0
        and size <= largest_head
        and torch.cuda.get_device_capability(q.device) >= (8, 0)
    )


def _always(q: Tensor, piece: Piece) -> bool:
    return q.dtype in FULL_PRECISION + LOW_PRECISION


FLASH = Packed("flash", _with_flash, aten.flash_forward, aten.flash_backward)
BACK_ENDS: tuple[BackEnd, ...] = (
    Tiled("cpu", _on_cpu, folded_forward, folded_backward, HOST_SQUARE, HOST_KEYS),
    # merging rounds, so in low precision triangles stay whole
    Tiled("cpu-low", _on_cpu_low, folded_forward, folded_backward, block=HOST_KEYS),
    OneCall("flash4", _with_flash4_whole, flash4.flash4_forward, flash4.flash4_backward),
    Packed(
        "flash4-documents",
        _with_flash4,
        flash4.flash4_packed_forward,
        flash4.flash4_packed_backward,
    ),
    Tiled("flash4-parts", _with_flash4_whole, flash4.flash4_forward, flash4.flash4_backward),
    Tiled("cudnn", _with_cudnn, aten.cudnn_forward, aten.cudnn_backward),
    FLASH,
    Tiled(PLAIN_PRODUCTS, _always, plain.plain_forward, plain.plain_backward, block=PLAIN_KEYS),
)


def back_end_for(q: Tensor, piece: Piece, rule: AttentionRule = PLAIN_ATTENTION) -> BackEnd:
    """The first in the table that serves these queries; scores with a cap are given to plain
    products, and long windows part by part to a kernel that knows none."""
    if rule.window is not None and rule.cap is None and _with_flash(q, piece):
        found = parts_back_end_for(q, piece, rule)
        return found if rule.window >= LONG_WINDOW and found.name != PLAIN_PRODUCTS else FLASH
    if rule.window is not None or rule.cap is not None:
        return parts_back_end_for(q, piece, rule)
    for back_end in BACK_ENDS:
        if back_end.serves(q, piece):
            return back_end
    raise _unknown(q)


def parts_back_end_for(q: Tensor, piece: Piece, rule: AttentionRule = PLAIN_ATTENTION) -> Tiled:
    """The first that serves these queries and can be given parts one by one."""
    if rule.cap is not None and _always(q, piece):
        return _capped(rule.cap)
    if rule.window is not None and q.is_cuda:
        piece = piece._replace(start=0, end=smallest_part(piece, rule.window))
    for back_end in BACK_ENDS:
        if isinstance(back_end, Tiled) and back_end.serves(q, piece):
            return back_end
    raise _unknown(q)


def smallest_part(piece: Piece, window: int) -> int:
    """Queries or keys of the smallest part of a slice with a window: kernels have a least size."""
    reaches = {group.reach for group in document_groups(piece, window)}
    found = [part for reach in reaches for part in parts(reach, UNCUT)]
    return min((len(span) for part in found for span in (part.queries, part.keys)), default=0)


@cache
def _capped(cap: float) -> Tiled:
    """No fused kernel has a cap in both directions."""
    ahead, back = partial(plain.plain_forward, cap=cap), partial(plain.plain_backward, cap=cap)
    return Tiled("plain-capped", _always, ahead, back, block=PLAIN_KEYS)


def _unknown(q: Tensor) -> RunError:
    return RunError(
        f"no attention is known for {q.dtype} on {q.device.type}",
        hint="use float32, float64, bfloat16 or float16",
    )

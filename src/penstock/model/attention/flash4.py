"""The functions of FlashAttention 4 that are called here, all of them and nowhere else.

The package `flash-attn-4` builds its kernels when they are first called, some seconds for each head
size, and for all lengths. Its public functions leave the backward to autograd, which lets no merged
log-sum-exp in, so the two functions below them are called. A test compares their signatures with
the arguments passed below.

Tensors are [rows, heads, tokens, head_size], and lie in memory as they come; what is returned lies
token by token, [rows, tokens, heads, head_size]. Queries are aligned with the last keys.
"""

import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor

from penstock.errors import RunError
from penstock.model.attention.aten import Gradients, Output, cumulative_lengths, longest
from penstock.model.attention.reach import Reach

PACKAGE = "flash-attn-4"


@cache
def has_flash4() -> bool:
    """Whether the package is installed; loading it takes seconds, and is left to the first call."""
    try:
        return bool(version(PACKAGE))
    except PackageNotFoundError:
        return False


def flash4_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Output:
    """16-bit only. Where it is causal, each query sees the keys up to its own and all before."""
    ahead, _ = _kernels()
    out, lse, *_ = ahead(*map(_by_token, (q, k, v)), causal=causal, return_lse=True)
    return _by_token(out), lse


def flash4_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, seen: Output, causal: bool
) -> Gradients:
    tensors = tuple(map(_by_token, (q, k, v)))
    return _gradients(_by_token(g), tensors, _by_token(seen[0]), seen[1], causal=causal)


def flash4_packed_forward(q: Tensor, k: Tensor, v: Tensor, reach: Reach) -> Output:
    """One row, [tokens, heads, head_size], its documents one after the other."""
    ahead, _ = _kernels()
    out, lse, *_ = ahead(q, k, v, causal=True, return_lse=True, **_documents(reach, q.device))
    return out, lse


def flash4_packed_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, seen: Output, reach: Reach
) -> Gradients:
    documents = _documents(reach, q.device)
    dq, dk, dv = _gradients(g, (q, k, v), *seen, causal=True, **documents)
    return _by_token(dq), _by_token(dk), _by_token(dv)


def _gradients(
    g: Tensor, tensors: tuple[Tensor, ...], out: Tensor, lse: Tensor, **options: Any
) -> Gradients:
    """Of queries, keys and values; token by token in memory, whatever the layout of those is."""
    _, back = _kernels()
    into = [tensor.new_empty(tensor.shape) for tensor in tensors]
    same_bits = torch.are_deterministic_algorithms_enabled()
    places = dict(zip(("dq", "dk", "dv"), into))
    back(*tensors, out, g, lse.contiguous(), deterministic=same_bits, **places, **options)
    dq, dk, dv = map(_by_token, into)
    return dq, dk, dv


def _documents(reach: Reach, device: torch.device) -> dict[str, Any]:
    queries, keys = cumulative_lengths(reach, device)
    most_queries, most_keys = longest(reach)
    return {
        "cu_seqlens_q": queries,
        "cu_seqlens_k": keys,
        "max_seqlen_q": most_queries,
        "max_seqlen_k": most_keys,
    }


def _by_token(tensor: Tensor) -> Tensor:
    """[..., heads, tokens, head_size] as [..., tokens, heads, head_size], and back."""
    return tensor.transpose(-3, -2)


@cache
def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Forward and backward. Building them warns of an argument that is not used here."""
    try:
        from flash_attn.cute.interface import _flash_attn_bwd, _flash_attn_fwd
    except ImportError as error:
        raise RunError(
            f"{PACKAGE} {version(PACKAGE)} is installed, but cannot be loaded: {error}",
            hint=f"install it again with `pip install 'penstock[gpu]'`, or take it away with "
            f"`pip uninstall {PACKAGE}` to compute attention with PyTorch's kernels",
        ) from error
    warnings.filterwarnings("ignore", message="Argument aux_data")
    return _flash_attn_fwd, _flash_attn_bwd

"""Queries, keys and values of one attention, together."""

from typing import NamedTuple

from torch import Tensor


class Heads(NamedTuple):
    """Each [rows, tokens, heads, head_size], or [rows, heads, tokens, head_size] where attention
    takes them."""

    q: Tensor
    k: Tensor
    v: Tensor

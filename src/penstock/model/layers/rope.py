"""Rotary positions: tables of cosines and sines, and the turn of queries and keys by them.

A pair of elements (i, i + d/2) of a head is turned by position x frequency[i], where d elements at
the start of a head are turned: as many as the tables have, usually all. A turn needs only the
tables to be undone, so the backward keeps no queries and no keys.

The tables are worked out in 32 bits with the operations of the transformers library in their order,
since a checkpoint was trained with those roundings and they reach the logits at long positions; a
model in 64 bits gets 64-bit tables.
"""

from collections.abc import Callable, Mapping
from math import ceil, floor, log, pi
from typing import Any

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.rope_scaling import RopeScaling
from penstock.model.kernels.choice import fusible


def rope_tables(
    config: ModelConfig, positions: range, dtype: torch.dtype, device: torch.device | str
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of these positions, each [positions, turned_size]; both halves are equal.
    The last position decides where frequencies depend on the length of sequences."""
    config.refuse_length(max(positions, default=-1) + 1)
    precision = torch.promote_types(dtype, torch.float32)
    at = torch.arange(positions.start, positions.stop, positions.step, device=device)
    length = max(positions, default=-1) + 1
    turned = at.to(precision)[:, None] * frequencies(config, precision, length).to(device)
    turns = torch.cat((turned, turned), dim=-1)
    scale = config.rope_scaling.scale if config.rope_scaling else 1.0
    cos, sin = turns.cos() * scale, turns.sin() * scale
    return cos.to(dtype), sin.to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn `x` [..., head_size] by the tables of its tokens, which broadcast against it."""
    turned: Tensor = _Rotate.apply(x, cos, sin)  # type: ignore[no-untyped-call]
    return turned


def rotate_back(g: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The gradient of what was turned, from the gradient `g` of what came out."""
    return _turn(g, cos, sin, -1)


def rotate_into(out: Tensor, x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Turn `x` [rows, tokens, heads, head_size] into `out`, which may be `x` itself; only where
    `fusible` says so."""
    from penstock.model.kernels.rope import turn_into  # deferred: needs Triton

    size = cos.shape[-1]
    _copy_rest(out, x, size)
    turn_into(out[..., :size], x[..., :size], cos, sin)


def rotate_back_into(out: Tensor, g: Tensor, cos: Tensor, sin: Tensor) -> None:
    """As `rotate_back`, written where it stays: both [rows, tokens, heads, head_size]."""
    if fusible(g):
        from penstock.model.kernels.rope import turn_into  # deferred: needs Triton

        size = cos.shape[-1]
        _copy_rest(out, g, size)
        turn_into(out[..., :size], g[..., :size], cos, sin, sign=-1.0)
        return
    _turn_into(out, g, cos, sin, -1)


class _Rotate(torch.autograd.Function):
    """A turn that keeps its tables and nothing else."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return rotate_back(gradients[0], *ctx.saved_tensors), None, None


def _turn(x: Tensor, cos: Tensor, sin: Tensor, sign: int = 1) -> Tensor:
    out = torch.empty_like(x)
    _turn_into(out, x, cos, sin, sign)
    return out


def _turn_into(out: Tensor, x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> None:
    size, half = cos.shape[-1], cos.shape[-1] // 2
    _copy_rest(out, x, size)
    out, x = out[..., :size], x[..., :size]
    torch.mul(x, cos, out=out)
    out[..., :half].addcmul_(x[..., half:], sin[..., :half], value=-sign)
    out[..., half:].addcmul_(x[..., :half], sin[..., half:], value=sign)


def _copy_rest(out: Tensor, x: Tensor, size: int) -> None:
    """What is not turned, where it is to lie elsewhere."""
    if size < x.shape[-1] and out.data_ptr() != x.data_ptr():
        out[..., size:].copy_(x[..., size:])


def frequencies(config: ModelConfig, precision: torch.dtype, length: int = 0) -> Tensor:
    """Turn per position of each pair, [turned_size / 2], in sequences up to a length."""
    exponents = torch.arange(0, config.turned_size, 2, dtype=precision) / config.turned_size
    powers = config.rope_theta**exponents
    scaling = config.rope_scaling
    if scaling is not None and scaling.kind == "longrope":
        return 1.0 / (torch.tensor(scaling.factors(length), dtype=precision) * powers)
    if scaling is None or scaling.kind not in _SCALED:
        return 1.0 / powers
    return _SCALED[scaling.kind](powers, scaling, config)


def _linear(powers: Tensor, scaling: RopeScaling, _: ModelConfig) -> Tensor:
    return 1.0 / powers / scaling.factor


def _llama3(powers: Tensor, scaling: RopeScaling, _: ModelConfig) -> Tensor:
    """Long wavelengths are stretched, short ones kept, those between mixed by their turns."""
    plain = 1.0 / powers
    turns = scaling.original_positions / (2 * pi / plain)
    kept = (turns - scaling.low_factor) / (scaling.high_factor - scaling.low_factor)
    mixed = (1 - kept) * plain / scaling.factor + kept * plain
    stretched = torch.where(turns < scaling.low_factor, plain / scaling.factor, mixed)
    return torch.where(turns > scaling.high_factor, plain, stretched)


def _yarn(powers: Tensor, scaling: RopeScaling, config: ModelConfig) -> Tensor:
    """Elements before the ramp keep their frequency, elements after it are stretched."""
    low, high = _ramp_ends(scaling, config)
    ramp = (torch.arange(len(powers), dtype=powers.dtype) - low) / (high - low)
    kept = 1 - ramp.clamp(0, 1)
    return 1.0 / (scaling.factor * powers) * (1 - kept) + 1.0 / powers * kept


def _ramp_ends(scaling: RopeScaling, config: ModelConfig) -> tuple[float, float]:
    """Elements that make beta_fast and beta_slow turns within the original positions."""
    turns = scaling.original_positions / (2 * pi)
    low, high = (
        config.turned_size * log(turns / beta) / (2 * log(config.rope_theta))
        for beta in (scaling.beta_fast, scaling.beta_slow)
    )
    if scaling.truncate:
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, config.turned_size - 1)
    return low, high if high != low else high + 0.001  # a ramp of no width is a step


_Scaled = Callable[[Tensor, RopeScaling, ModelConfig], Tensor]
_SCALED: Mapping[str, _Scaled] = {"linear": _linear, "llama3": _llama3, "yarn": _yarn}
"""Dynamic scaling is not here: it starts beyond the positions that a config lets through."""

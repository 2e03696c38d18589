"""Rotary positions of the plain decoder, in 64 bits."""

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.errors import ShapeError


def rotary_tables(config: ModelConfig, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angle of every position and element, in 64 bits."""
    pairs = torch.arange(config.turned_size // 2, dtype=torch.float64, device="cpu")
    frequencies = config.rope_theta ** (-2 * pairs / config.turned_size)
    stretch, scale = _stretch(config, length)
    angles = torch.arange(length, dtype=torch.float64, device="cpu").outer(frequencies / stretch)
    return angles.cos().repeat(1, 2) * scale, angles.sin().repeat(1, 2) * scale


def _stretch(config: ModelConfig, length: int) -> tuple[Tensor, float]:
    """What frequencies are divided by where the longest sequence has so many tokens, and what
    turned queries and keys are multiplied by."""
    scaling = config.rope_scaling
    if scaling is None:
        return torch.ones((), dtype=torch.float64, device="cpu"), 1.0
    factors = {"linear": [scaling.factor], "longrope": scaling.factors(length)}
    if scaling.kind not in factors:
        raise ShapeError(
            f"the plain decoder has no rope scaling {scaling.kind}",
            hint="leave out rope_scaling, or take linear or longrope",
        )
    return torch.tensor(factors[scaling.kind], dtype=torch.float64, device="cpu"), scaling.scale


def turn_by_tables(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: the halves of a head are real and imaginary parts, turned by an angle; of
    as many elements as the tables have."""
    turned, rest = x.tensor_split([cos.shape[-1]], dim=-1)
    real, imaginary = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat((-imaginary, real), dim=-1) * sin
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned

"""Initial weights: the same numbers for a parameter however the model is spread.

Each parameter has a random stream of its own, named by the seed and its own name.
"""

import hashlib
from math import sqrt

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig

SPREAD = 0.02
"""Standard deviation of matrices, as in the models that these layers follow."""


def initialise(config: ModelConfig, name: str, out: Tensor, seed: int) -> None:
    """Fill a parameter: norms with one, biases with zero, matrices with normal numbers.

    Matrices that lead back to the residual are smaller, since each layer adds two of them.
    """
    if name.endswith("norm.weight"):
        out.fill_(1.0)
    elif name.endswith("bias"):
        out.zero_()
    else:
        back = name.endswith(("o_proj.weight", "down_proj.weight"))
        spread = SPREAD / sqrt(2 * config.layers) if back else SPREAD
        stream = torch.Generator().manual_seed(_seed(seed, name))
        numbers = torch.empty(out.shape, dtype=torch.float32).normal_(0, spread, generator=stream)
        out.copy_(numbers)


def _seed(seed: int, name: str) -> int:
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return int.from_bytes(digest[:7], "big")

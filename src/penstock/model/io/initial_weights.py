"""Initial weights: the same numbers for a parameter however the model is spread.

Each parameter has a random stream of its own, named by the seed and its own name.
"""

import hashlib
from math import sqrt

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.layers.parameter import InitialValue, Parameter
from penstock.arch.parameters import EMBEDDING, HEAD, model_parameters
from penstock.errors import ShapeError, nearest

SPREAD = 0.02
"""Standard deviation of matrices, as in the models that these layers follow."""


def initialise(config: ModelConfig, name: str, out: Tensor, seed: int) -> None:
    """Fill a parameter as the record of its layer says.

    Matrices that lead back to the residual are smaller, since each layer adds two of them.
    """
    start = _parameter(config, name).start
    if start is InitialValue.ONES:
        out.fill_(1.0)
    elif start is InitialValue.ZEROS:
        out.zero_()
    elif start is InitialValue.HALVES:
        out.fill_(0.5)
    else:
        stream = torch.Generator().manual_seed(_seed(seed, name))
        out.copy_(_random(start, torch.empty(out.shape, dtype=torch.float32), config, stream))


def _random(
    start: InitialValue, out: Tensor, config: ModelConfig, stream: torch.Generator
) -> Tensor:
    if start is InitialValue.UNIFORM:  # as PEFT: Kaiming's for a slope of sqrt(5)
        bound = 1 / sqrt(out.shape[-1])
        return out.uniform_(-bound, bound, generator=stream)
    back = start is InitialValue.NORMAL_TO_RESIDUAL
    return out.normal_(0, SPREAD / sqrt(2 * config.layers) if back else SPREAD, generator=stream)


def _parameter(config: ModelConfig, name: str) -> Parameter:
    """The parameter of that name; a tied head that is held apart starts as the embedding."""
    parameters = model_parameters(config)
    known = EMBEDDING if name == HEAD and config.tied else name
    if known not in parameters:
        raise ShapeError(f"the model has no {name}", hint=nearest(name, list(parameters)))
    return parameters[known]


def _seed(seed: int, name: str) -> int:
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return int.from_bytes(digest[:7], "big")

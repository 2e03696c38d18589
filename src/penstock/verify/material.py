"""Weights and sequences to verify with: random, but the same in every process and on every run."""

from math import sqrt

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import expected_shapes
from penstock.data.batch import IGNORE, Microbatch
from penstock.verify.oracle import Named
from penstock.verify.variants import Batch

SEED = 20240613


def parameters_of(model: ModelConfig, dtype: torch.dtype) -> Named:
    """A value for every parameter.

    The values are exact in 32 bits, so that one answer of the oracle serves both types.
    """
    generator = torch.Generator().manual_seed(SEED)
    usual = 0 if model.norm_adds_one else 1
    return {
        name: _value(name, torch.randn(size, generator=generator), usual).to(dtype)
        for name, size in expected_shapes(model).items()
    }


def _value(name: str, noise: Tensor, usual: int) -> Tensor:
    """Norms scatter around what makes them multiply by 1, the rest around 0.

    A matrix halves its input: larger ones make the model so sensitive that 32 bits give a gradient
    no better than the tolerance.
    """
    if noise.dim() == 1:
        return noise / 4 + (usual if name.endswith("norm.weight") else 0)
    return noise / (2 * sqrt(noise.shape[1]))


def microbatches_of(batch: Batch, vocabulary: int) -> list[Microbatch]:
    """The sequences of a batch, cut into documents and labelled."""
    generator = torch.Generator().manual_seed(SEED)
    return [
        _microbatch(batch, mb, torch.randint(vocabulary, (batch.rows, n), generator=generator))
        for mb, n in enumerate(batch.lengths or (batch.length,) * batch.microbatches)
    ]


def _microbatch(batch: Batch, mb: int, tokens: Tensor) -> Microbatch:
    first, length = mb * batch.rows, tokens.shape[1]
    wanted = [batch.documents[(first + row) % len(batch.documents)] for row in range(batch.rows)]
    documents = tuple(tuple(start for start in starts if start < length) for starts in wanted)
    labels = tokens.roll(-1, 1)
    for row, starts in enumerate(documents):
        labels[row, [start - 1 for start in starts]] = IGNORE  # -1 is the end of the sequence
    labels[:, length - batch.ignored[mb % len(batch.ignored)] :] = IGNORE
    return Microbatch(tokens, labels, documents)

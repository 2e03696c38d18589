"""How often an op of each kind does each kind of work: one number for each letter.

Weight gradients are apart: what is frozen has none.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.arch.config import ModelConfig
from penstock.core.table import LETTERS

Counts = NDArray[np.int64]


def _by_kind(**times: int) -> Counts:
    return np.array([times.get(letter, 0) for letter in LETTERS], np.int64)


FORWARD, INPUT, WEIGHT = _by_kind(F=1, N=1, R=1), _by_kind(I=1, B=1), _by_kind(W=1, B=1)
"""Products with the matrices of a layer: outputs, and both gradients."""
ATTENTION_FORWARD = _by_kind(F=1, N=1, R=1)
ATTENTION_BACKWARD = _by_kind(I=2, B=2)
HEAD_PRODUCTS, HEAD_WEIGHT = _by_kind(I=2, B=2), _by_kind(I=1, B=1)
HEAD_ADAPTERS = _by_kind(I=1, B=1)
SHARD = {"F": _by_kind(), "S": _by_kind(S=2), "T": _by_kind(S=1, T=1)}
"""Products with one vocabulary shard, by who starts the backward."""
SHARD_WEIGHT = {"F": _by_kind(), "S": _by_kind(T=1), "T": _by_kind(T=1)}
LOOKUP, LOOKUP_WEIGHT = _by_kind(F=2, N=2, R=2), _by_kind(I=3, B=3)
"""Rows of h elements that an embedding moves per token: read, write; backward: read, add, write."""
LOOKUP_OWN, LOOKUP_OWN_WEIGHT = _by_kind(E=1), _by_kind(D=2)
"""The same on a shard: it has rows of its own tokens, but writes, or reads, rows of all."""
LOOKUP_ALL = _by_kind(E=1, D=1)
COPY = _by_kind(O=1, L=1)


def layer_products(model: ModelConfig) -> Counts:
    """FLOPs of one token in the products of one layer with its weights, by kind of op."""
    return (
        FORWARD * model.layer_flops
        + INPUT * model.layer_input_flops
        + WEIGHT * model.layer_weight_flops
    )


class EndPasses(NamedTuple):
    """What ops of each kind do with embedding and head: products, and rows that are moved."""

    head: Counts
    shard: Counts
    lookup: Counts
    lookup_own: Counts


def end_passes(model: ModelConfig, loss: str) -> EndPasses:
    """Of a model, by who starts its backward; where they are frozen, without their gradients."""
    trained = int(model.trains_all)
    return EndPasses(
        HEAD_PRODUCTS + HEAD_WEIGHT * trained,
        SHARD[loss] + SHARD_WEIGHT[loss] * trained,
        LOOKUP + LOOKUP_WEIGHT * trained,
        LOOKUP_OWN + LOOKUP_OWN_WEIGHT * trained,
    )

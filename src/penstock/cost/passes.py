"""How often an op of each kind does each kind of work: one number for each letter."""

import numpy as np
from numpy.typing import NDArray

from penstock.core.table import LETTERS

Counts = NDArray[np.int64]


def _by_kind(**times: int) -> Counts:
    return np.array([times.get(letter, 0) for letter in LETTERS], np.int64)


LINEAR = _by_kind(F=1, N=1, R=1, I=1, W=1, B=2)
ATTENTION_FORWARD = _by_kind(F=1, N=1, R=1)
ATTENTION_BACKWARD = _by_kind(I=2, B=2)
HEAD_PRODUCTS = _by_kind(I=3, B=3)
SHARD = {"F": _by_kind(), "S": _by_kind(S=2, T=1), "T": _by_kind(S=1, T=2)}
"""Products with one vocabulary shard, by who starts the backward."""
LOOKUP = _by_kind(F=2, N=2, R=2, I=3, B=3)
"""Rows of h elements that an embedding moves per token: read, write; backward: read, add, write."""
LOOKUP_OWN, LOOKUP_ALL = _by_kind(E=1, D=2), _by_kind(E=1, D=1)
"""The same on a shard: it has rows of its own tokens, but writes, or reads, rows of all."""
COPY = _by_kind(O=1, L=1)

"""Small corpora in memory, and the oracle that they are read against."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from penstock.data.corpus import Array, Corpus, corpus
from penstock.errors import PenstockError

T = TypeVar("T")

VOCABULARY = 1 << 20

usual = settings(deadline=None)
"""No deadline: a busy machine is no defect."""
thorough = settings(deadline=None, max_examples=300)


def outcome(action: Callable[[], T]) -> T | PenstockError:
    """What an action gives, or our own error; any other one is a defect and comes through."""
    try:
        return action()
    except PenstockError as refusal:
        return refusal


def array_of(documents: Sequence[Sequence[int]], name: str = "'x.npy'") -> Array:
    """Documents end to end, as a file would hold them."""
    tokens = np.array([token for document in documents for token in document], dtype=np.int64)
    ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
    return Array(name, tokens, np.append(0, ends), name)


def corpus_of(documents: Sequence[Sequence[int]]) -> Corpus:
    return corpus([array_of(documents)], VOCABULARY)


def numbered(lengths: Sequence[int]) -> list[list[int]]:
    """Documents in which no token comes twice: document d, offset i is token 1000 d + i."""
    return [[1000 * number + at for at in range(length)] for number, length in enumerate(lengths)]


lengths = st.lists(st.integers(0, 12), min_size=1, max_size=12).filter(lambda all: sum(all) > 0)
"""Documents of a few tokens, empty ones among them."""

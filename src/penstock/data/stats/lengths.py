"""How long documents are: percentiles, and a histogram in powers of two.

Real corpora have a median of some hundred tokens and a tail of a million. A mean says nothing of
that, and neither does a histogram on an even scale. What matters is both how many documents and how
many tokens are of a length, so each bucket has both.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from penstock.data.corpus import Longs

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)


class LengthBucket(NamedTuple):
    """Documents of similar lengths."""

    low: int
    """Fewest tokens of one."""
    high: int
    """Most tokens of one."""
    documents: int
    tokens: int


@dataclass(frozen=True, eq=False)
class LengthStats:
    """The lengths of some documents, none of which is empty."""

    lengths: Longs

    @property
    def documents(self) -> int:
        return len(self.lengths)

    @cached_property
    def tokens(self) -> int:
        return int(self.lengths.sum())

    @property
    def mean(self) -> float:
        return self.tokens / self.documents

    @property
    def longest(self) -> int:
        return int(self.lengths.max())

    @cached_property
    def percentiles(self) -> dict[float, int]:
        """The least length that this share of the documents, in per cent, does not exceed."""
        ordered = np.sort(self.lengths)
        places = [max(-(-self.documents * share // 100), 1) for share in PERCENTILES]
        return {share: int(ordered[int(at) - 1]) for share, at in zip(PERCENTILES, places)}

    @cached_property
    def histogram(self) -> list[LengthBucket]:
        """Buckets from the shortest document to the longest; each ends at a power of two."""
        upper = np.ceil(np.log2(self.lengths)).astype(np.int64)
        first, last = int(upper.min()), int(upper.max())
        counts = np.bincount(upper - first, minlength=last - first + 1)
        tokens = np.bincount(upper - first, self.lengths, last - first + 1)
        return [
            LengthBucket(2**power // 2 + 1 if power else 1, 2**power, int(count), int(sum_))
            for power, count, sum_ in zip(range(first, last + 1), counts, tokens)
        ]

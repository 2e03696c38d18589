"""What passes over a vocabulary shard keep and need."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.arch.config import ModelConfig
from penstock.arch.layers.lm_head import LOGITS_AT_A_TIME
from penstock.arch.layers.record import wide_bytes

STATISTICS = 3
"""Numbers that are kept for each token: the largest logit, a sum, and the logit of the label."""


class ShardBytes(NamedTuple):
    """The largest of some shards of a model's vocabulary."""

    model: ModelConfig
    shards: int

    @property
    def words(self) -> int:
        return -(-self.model.vocabulary // self.shards)

    @property
    def kept(self) -> int:
        """Of one token, from the first pass to the second: exponentials, and what they are of;
        with a cap of the logits its slope too."""
        capped = self.model.logit_cap is not None
        narrow = self.model.element_bytes
        return narrow * (self.words * (1 + capped) + self.model.hidden) + STATISTICS * wide_bytes(
            narrow
        )

    def running(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of slices while a pass runs: logits in 32 bits, where less is kept of them."""
        narrow, wide = self.model.element_bytes, wide_bytes(self.model.element_bytes)
        logits = np.minimum(tokens * self.words, LOGITS_AT_A_TIME)
        return np.asarray(logits * wide * (narrow < wide), np.int64)

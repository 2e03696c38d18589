"""What the backward of attention needs only while it runs, on a rank of a cell.

Gradients come part by part from a kernel that knows triangles and rectangles, and are added to
those of the slice. On the CPU parts are small, and copies are made for the kernel
(model/attention); these bytes are bounded, so on a GPU, where long slices are, they are next to
nothing. In a ring, keys of one rank after the other are here as well, and gradients of them. All
numbers are bytes, where they are not tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.arch.layers.attention import FOLDED_BELOW, HOST_KEYS, HOST_SQUARE, Attention
from penstock.arch.layers.record import LSE_BYTES, wide_bytes
from penstock.cost.rank_share import RankShare


@dataclass(frozen=True)
class AttentionMoments:
    """The moments of one slice, with the heads that a rank attends with."""

    share: RankShare
    tokens: int
    """Queries of the slice that its place in the ring has."""
    keys: int
    """Keys that its place in the ring has, of the slices up to this one."""
    left: int = 0
    """Keys of earlier slices that this one is the first to leave gradients for."""

    @property
    def _layer(self) -> Attention:
        return self.share.attended.attention

    @property
    def _query(self) -> int:
        """The queries of a token."""
        return self._layer.query_width * self._layer.element_bytes

    @property
    def _block(self) -> int:
        """Keys and values that one rank of a ring has."""
        return self.keys * self._layer.kv_bytes

    def most(self) -> int:
        """The most beside the gradient of the output: at the end, those of queries, keys and
        values."""
        return max(self._ring() if self.share.cell.ring > 1 else self._alone())

    def _alone(self) -> Iterator[int]:
        tokens, past = self.tokens, self.keys - self.tokens
        left = self.left * self._layer.kv_bytes
        found = left + tokens * (self._query + self._layer.kv_bytes)
        if past:  # gradients of all keys at once are left as they are
            again = (left + tokens * self._query) * (past > HOST_KEYS)
            yield again + self._part(tokens, past)
        if tokens > HOST_SQUARE:
            yield found + self._part(tokens - tokens // 2, tokens - tokens // 2)
        yield found + tokens * self._query * (past > 0)

    def _ring(self) -> Iterator[int]:
        """Another rank's keys with gradients of these and of own ones, and a part; or gradients on
        their way. In a ring of more than two ranks, more of both is on its way meanwhile."""
        ranks, layer = self.share.cell.ring, self._layer
        wide = self._query * wide_bytes(layer.element_bytes) // layer.element_bytes
        found = self.tokens * wide
        early, late = map(len, self.share.chunks(self.tokens * ranks))
        part = self._part(max(early, late), self.keys)
        if self.share.place.ring == ranks - 1:  # chunks that follow each other are one part
            part = self._part(early + late, self.keys - late)
        yield found + self._block * (3 + 2 * min(ranks - 2, 2)) + part
        yield found + self._block * (4 + 2 * (ranks > 2))

    def _part(self, queries: int, keys: int) -> int:
        """The gradients of a rectangle, with what is copied for the kernel of the CPU: gradient,
        queries and output where heads share keys, and the log-sum-exp."""
        layer = self._layer
        folded = layer.heads > layer.kv_heads and queries < FOLDED_BELOW
        copied = folded * (3 * self._query + LSE_BYTES * layer.heads)
        return queries * (self._query + copied) + min(keys, HOST_KEYS) * layer.kv_bytes

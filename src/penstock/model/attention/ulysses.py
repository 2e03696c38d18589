"""Tokens for heads: the exchange around attention among ranks that share the tokens of a slice.

Outside attention each rank has some tokens with all heads, inside all tokens with some heads. Both
ways are one all-to-all; the gradients go back by the other one.

    4 tokens, heads a b c d, 2 ranks
    rank 0   t0 t1 : a b c d    ->    t0 t1 t2 t3 : a b
    rank 1   t2 t3 : a b c d    ->    t0 t1 t2 t3 : c d

Neither tokens nor heads need to divide. A key/value head that several ranks have goes to each of
them, and its gradients are added up when they come back.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.arch.dealing import HeadShare, deal_heads
from penstock.model.attention.heads import Heads
from penstock.model.parallel.group import RankGroup, Work


class HeadExchange:
    """The exchange of one rank. Heads are [rows, heads, tokens, head_size]; `counts` says how many
    tokens each rank has."""

    def __init__(self, group: RankGroup, heads: int, kv_heads: int) -> None:
        self.group, self.heads, self.kv_heads = group, heads, kv_heads
        ranks = range(group.size)
        self.shares = [deal_heads(heads, kv_heads, rank, group.size) for rank in ranks]
        self.own = self.shares[group.index]

    def to_heads(self, heads: Heads, counts: Sequence[int]) -> Work[Heads]:
        """Own heads of all tokens, of all heads of own tokens."""
        q, k, v = (part.transpose(1, 2) for part in heads)
        parts = [
            torch.cat((_of(q, share.queries), _of(k, share.keys), _of(v, share.keys)), dim=2)
            for share in self.shares
        ]
        del heads, q, k, v
        sizes = self._widths(self.own)
        received = yield from self._exchange(parts, counts, [sum(sizes)] * self.group.size)
        cut = zip(*(torch.split(part, sizes, dim=2) for part in received))
        return Heads(*(torch.cat(each, dim=1).transpose(1, 2) for each in cut))

    def to_tokens(self, out: Tensor, counts: Sequence[int]) -> Work[Tensor]:
        """The outputs [rows x tokens, all heads x head_size] of own tokens, of own heads of all."""
        parts = list(torch.split(out.transpose(1, 2), list(counts), dim=1))
        widths = [len(share.queries) for share in self.shares]
        received = yield from self._exchange(parts, self._mine(counts), widths)
        return torch.cat(received, dim=2).flatten(2).flatten(0, 1)

    def output_gradient_to_heads(
        self, d_out: Tensor, rows: int, counts: Sequence[int]
    ) -> Work[Tensor]:
        """The way back of `to_tokens`."""
        d = d_out.view(rows, -1, self.heads, d_out.shape[-1] // self.heads)
        parts = [_of(d, share.queries) for share in self.shares]
        widths = [len(self.own.queries)] * self.group.size
        received = yield from self._exchange(parts, counts, widths)
        return torch.cat(received, dim=1).transpose(1, 2)

    def gradients_to_tokens(self, d: Heads, counts: Sequence[int]) -> Work[Heads]:
        """The way back of `to_heads`."""
        whole = torch.cat([part.transpose(1, 2) for part in d], dim=2)
        del d
        parts = list(torch.split(whole, list(counts), dim=1))
        del whole
        widths = [sum(self._widths(share)) for share in self.shares]
        received = yield from self._exchange(parts, self._mine(counts), widths)
        rows, tokens, _, size = received[0].shape
        q = received[0].new_empty(rows, tokens, self.heads, size)
        k, v = (q.new_zeros(rows, tokens, self.kv_heads, size) for _ in range(2))
        for share, part in zip(self.shares, received):
            d_q, d_k, d_v = torch.split(part, self._widths(share), dim=2)
            _of(q, share.queries).copy_(d_q)
            _of(k, share.keys).add_(d_k)
            _of(v, share.keys).add_(d_v)
        return Heads(*(part.transpose(1, 2) for part in (q, k, v)))

    def _exchange(
        self, parts: list[Tensor], counts: Sequence[int], widths: Sequence[int]
    ) -> Work[list[Tensor]]:
        """Send parts [rows, tokens, heads, head_size], and receive those with so many tokens and
        heads from each rank. The list is emptied: its tensors would live as long as the exchange.
        """
        rows, _, _, size = parts[0].shape
        sizes = [(rows, count, width, size) for count, width in zip(counts, widths)]
        sent = [part.contiguous() for part in parts]
        parts.clear()
        received, pending = self.group.exchange(sent, sizes)
        del sent
        yield pending
        return received

    def _mine(self, counts: Sequence[int]) -> list[int]:
        return [counts[self.group.index]] * self.group.size

    def _widths(self, share: HeadShare) -> list[int]:
        """Heads of queries, keys and values."""
        return [len(share.queries), len(share.keys), len(share.keys)]


def _of(tensor: Tensor, heads: range) -> Tensor:
    """Some heads of [rows, tokens, heads, head_size]."""
    return tensor[:, :, heads.start : heads.stop]

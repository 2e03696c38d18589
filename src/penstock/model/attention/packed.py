"""Kernels that know documents of different lengths, with fewer queries than keys.

One call does a row of a slice: its documents one after the other, the first with its past. Nothing
has to be merged.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.model.attention.aten import Gradients, Output
from penstock.model.attention.back_end import AttentionSaved, Fits, Leave
from penstock.model.attention.one_call import leave_past
from penstock.model.attention.reach import Reach


@dataclass(frozen=True)
class Packed:
    """A back end made of the forward and the backward of a kernel for rows of documents."""

    name: str
    serves: Fits
    ahead: Callable[[Tensor, Tensor, Tensor, Reach], Output]
    back: Callable[[Tensor, Tensor, Tensor, Tensor, Output, Reach], Gradients]

    def forward(self, q: Tensor, k: Tensor, v: Tensor, reach: Reach) -> Output:
        each = [
            self.ahead(_by_token(q[row]), _by_token(k[row]), _by_token(v[row]), reach)
            for row in range(q.shape[0])
        ]
        outs, lses = zip(*each)
        return torch.stack(outs).transpose(1, 2), torch.stack(lses)

    def backward(self, g: Tensor, saved: AttentionSaved, reach: Reach, leave: Leave) -> Gradients:
        each = [self._back(g, saved, reach, row) for row in range(g.shape[0])]
        dq, dk, dv = (torch.stack(new).transpose(1, 2) for new in zip(*each))
        return dq, *leave_past(dk, dv, reach, leave)

    def _back(self, g: Tensor, saved: AttentionSaved, reach: Reach, row: int) -> Gradients:
        k, v = _by_token(saved.k[row]), _by_token(saved.v[row])
        done = _by_token(saved.out[row]), saved.lse[row]
        return self.back(_by_token(g[row]), _by_token(saved.q[row]), k, v, done, reach)


def _by_token(tensor: Tensor) -> Tensor:
    """[heads, tokens, head_size] as [tokens, heads, head_size]."""
    return tensor.transpose(0, 1)

"""Which tokens are kept, and how they come back: the arithmetic of a pair of brackets.

    scores      s = x u, one number for each token, in 32 bits at least
    selection   the tokens with the largest scores, in their order; each has a weight w in 0..1
    upsampling  z = w y + (1 - w) x where a token was kept, x where it was not
    bypass      x + (z - x) c, with one c for each feature

In training a kept token's weight is its own score between 0 and 1, less that of a token that just
missed: so both have a gradient, and tokens that are left out learn to have no weight. The rest
follows arXiv:2406.06571 and the model that it comes from.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Selection(NamedTuple):
    """What is kept of each row; tokens count from the first of the slice on that level."""

    kept: Tensor
    """[rows, kept], ascending"""
    weights: Tensor
    """[rows, kept], that of each"""
    rivals: Tensor
    """[rows, kept], the token whose weight was taken off; the number of tokens where none was"""


def precise(dtype: torch.dtype) -> torch.dtype:
    """What scores and weights are computed in."""
    return torch.promote_types(dtype, torch.float32)


def scores_of(x: Tensor, scorer: Tensor, rows: int) -> Tensor:
    """[rows, tokens] of x [rows x tokens, hidden]."""
    wide = precise(x.dtype)
    return torch.mv(x.to(wide), scorer.to(wide)).view(rows, -1)


def select(scores: Tensor, count: int, *, flip: bool | None) -> Selection:
    """The `count` tokens of each row with the largest scores, the first of those that are equal.
    With `flip` None no weight is taken off; otherwise it says whether those that missed are met
    from the last on. Padding has a score of minus infinity: it is kept only where nothing else is
    left, and has no weight."""
    tokens = scores.shape[1]
    ordered, order = scores.sort(dim=1, descending=True, stable=True)
    weights = ordered.clamp(0, 1)
    own, rivals = weights[:, :count], order[:, :0]
    if flip is not None:
        rivals = order[:, count : 2 * count]
        missed = torch.zeros_like(own)
        missed[:, : rivals.shape[1]] = weights[:, count : 2 * count]
        own = own - (missed.flip(1) if flip else missed)
    all_rivals = order.new_full(own.shape, tokens)
    all_rivals[:, : rivals.shape[1]] = rivals
    if flip:
        all_rivals = all_rivals.flip(1)
    kept, by = order[:, :count].sort(dim=1)
    return Selection(kept, own.gather(1, by), all_rivals.gather(1, by))


def select_positive(scores: Tensor) -> Selection:
    """Every token with a score above 0, of one row: whether one is kept depends on itself alone."""
    kept = (scores[0] > 0).nonzero()[:, 0][None]
    rivals = torch.full_like(kept, scores.shape[1])
    return Selection(kept, scores.gather(1, kept).clamp(0, 1), rivals)


def score_gradient(scores: Tensor, selection: Selection, d_weights: Tensor) -> Tensor:
    """The gradient of scores, from that of the weights; a weight that is at a bound has a score
    without one."""
    rows, tokens = scores.shape
    found = d_weights.new_zeros(rows, tokens + 1)  # the last for kept tokens without a rival
    found.scatter_add_(1, selection.kept, d_weights)
    found.scatter_add_(1, selection.rivals, -d_weights)
    return found[:, :tokens] * ((scores >= 0) & (scores <= 1))


def flat_places(kept: Tensor, tokens: int) -> Tensor:
    """Where kept tokens stand among the rows one behind the other."""
    first = torch.arange(len(kept), device=kept.device)[:, None] * tokens
    return (kept + first).flatten()


class UpsampledSaved(NamedTuple):
    """What the way back needs."""

    difference: Tensor
    """y - x of the kept tokens, [rows x kept, hidden]"""
    places: Tensor
    weights: Tensor
    """[rows x kept, 1]"""


def upsample(
    x: Tensor, y: Tensor, kept: Tensor, weights: Tensor, scale: Tensor
) -> tuple[Tensor, UpsampledSaved]:
    """All tokens, of those in front of the bracket and of those that were kept inside of it.

    z and the bypass are written as means of two, c z + (1 - c) x, so that with a weight and a c of
    1 what comes out is y, bit for bit."""
    places, wide = flat_places(kept, len(x) // len(kept)), precise(x.dtype)
    w, c = weights.reshape(-1, 1), scale.to(wide)
    old, new = x[places].to(wide), y.to(wide)
    z = w * new + (1 - w) * old
    out = x.clone()
    out[places] = (c * z + (1 - c) * old).to(x.dtype)
    return out, UpsampledSaved((new - old).to(x.dtype), places, w)


class UpsampleGradients(NamedTuple):
    """Of everything that goes into a bracket that closes."""

    x: Tensor
    y: Tensor
    weights: Tensor
    """[rows x kept]"""
    scale: Tensor


def upsample_backward(d: Tensor, saved: UpsampledSaved, scale: Tensor) -> UpsampleGradients:
    wide = precise(d.dtype)
    difference, c, w = saved.difference.to(wide), scale.to(wide), saved.weights
    own = d[saved.places].to(wide)
    dx = d.clone()
    dx[saved.places] = (own * (1 - w * c)).to(d.dtype)
    moved = own * difference
    return UpsampleGradients(dx, (own * (w * c)).to(d.dtype), moved @ c, (moved * w).sum(0))

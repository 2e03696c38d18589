"""A bracket that opens and a bracket that closes, forward and back, on the ranks of a cell.

Ranks that share the matrices may each hold some tokens between blocks. Which are kept is decided
over all of them: they are gathered, every rank computes the same, and holds its share again. So the
gradients of scorers and bypasses are whole on every rank.
"""

import torch
from torch import Tensor

from penstock.arch.draws import Moment, Purpose
from penstock.arch.subsampling import Pair, Subsampling
from penstock.model.attention.piece import Piece
from penstock.model.layers.score_balance import (
    LIMITER_CHANCE,
    balanced_gradient,
    balancer_chance,
    least_scale,
    limited_gradient,
)
from penstock.model.layers.subsample import (
    Selection,
    UpsampledSaved,
    flat_places,
    precise,
    score_gradient,
    scores_of,
    select,
    select_positive,
    upsample,
    upsample_backward,
)
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import TokenShares, gather_tokens
from penstock.model.stages.carried_levels import BracketGradient, OpenBracket
from penstock.model.stages.subsampled_values import ScoredSaved

FLIP_CHANCE = 0.5


class Brackets:
    """The brackets of a stage; `around` is the slice as layers see it around a bracket."""

    def __init__(self, subsampling: Subsampling, tokens: TokenShares) -> None:
        self.subsampling, self.tokens = subsampling, tokens

    def open(
        self, scorer: Tensor, pair: Pair, x: Tensor, around: Piece, padding: Tensor | None
    ) -> Work[tuple[Tensor, OpenBracket, ScoredSaved]]:
        """The kept tokens, what the bracket that closes needs, and what the way back needs."""
        whole = yield from gather_tokens(self.tokens, x, around.tokens.numel())
        scores = scores_of(whole, scorer, around.rows)
        if padding is not None:
            scores = scores.masked_fill(padding, -torch.inf)
        selection = self._select(pair, scores, around)
        y = whole[flat_places(selection.kept, scores.shape[1])]
        carried = OpenBracket(x, selection.kept, selection.weights)
        return self.tokens.hold(y), carried, ScoredSaved(x, scores, selection)

    def close(
        self, scale: Tensor, carried: OpenBracket, y: Tensor, around: Piece
    ) -> Work[tuple[Tensor, UpsampledSaved]]:
        """All tokens again."""
        old = yield from gather_tokens(self.tokens, carried.x, around.tokens.numel())
        new = yield from gather_tokens(self.tokens, y, carried.kept.numel())
        out, saved = upsample(old, new, carried.kept, carried.weights, scale)
        return self.tokens.hold(out), saved

    def close_backward(
        self,
        scale: Tensor,
        gradient: Tensor,
        pair: Pair,
        saved: UpsampledSaved,
        d: Tensor,
        around: Piece,
    ) -> Work[tuple[Tensor, BracketGradient]]:
        """The gradient of the kept tokens, and what goes to the bracket that opened."""
        whole = yield from gather_tokens(self.tokens, d, around.tokens.numel())
        found, moment = upsample_backward(whole, saved, scale), _moment(around)
        d_scale = found.scale
        if moment.draw(pair.number, Purpose.LIMITER) < LIMITER_CHANCE:
            least = least_scale(self.subsampling, moment.step)
            d_scale = limited_gradient(d_scale, scale.to(d_scale.dtype), least)
        gradient.add_(d_scale)
        weights = found.weights.view(around.rows, -1)
        return self.tokens.hold(found.y), BracketGradient(self.tokens.hold(found.x), weights)

    def open_backward(
        self,
        scorer: Tensor,
        gradient: Tensor,
        pair: Pair,
        saved: ScoredSaved,
        d: Tensor,
        back: BracketGradient,
        around: Piece,
    ) -> Work[Tensor]:
        """The gradient of what went into the bracket, of those of its kept tokens and of what went
        past them."""
        count, kept = around.tokens.numel(), saved.selection.kept
        dy = yield from gather_tokens(self.tokens, d, kept.numel())
        past = yield from gather_tokens(self.tokens, back.x, count)
        x = yield from gather_tokens(self.tokens, saved.x, count)
        d_scores = self._score_gradient(pair, saved, back.weights, around).flatten()
        wide = precise(x.dtype)
        gradient.add_(d_scores @ x.to(wide))
        dx = torch.addr(past.to(wide), d_scores, scorer.to(wide)).to(x.dtype)
        dx[flat_places(kept, saved.scores.shape[1])] += dy  # a token is kept once: one place each
        return self.tokens.hold(dx)

    def _select(self, pair: Pair, scores: Tensor, around: Piece) -> Selection:
        if around.levels is None:
            return select_positive(scores)
        span, moment = around.levels.spans[pair.level - 1], around.levels.moment
        flip = None if moment is None else moment.draw(pair.number, Purpose.FLIP) < FLIP_CHANCE
        return select(scores, span.end - span.start, flip=flip)

    def _score_gradient(
        self, pair: Pair, saved: ScoredSaved, d_weights: Tensor, around: Piece
    ) -> Tensor:
        scores, moment = saved.scores, _moment(around)
        found = score_gradient(scores, saved.selection, d_weights)
        chance = balancer_chance(self.subsampling, moment.step)
        if moment.draw(pair.number, Purpose.BALANCER) < chance:
            found = balanced_gradient(found, scores, self.subsampling.keep)
        return found


def _moment(piece: Piece) -> Moment:
    assert piece.levels is not None
    assert piece.levels.moment is not None  # backwards belong to training steps
    return piece.levels.moment

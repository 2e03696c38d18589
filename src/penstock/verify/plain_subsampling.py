"""A decoder that leaves out tokens as its paper writes it: whole sequences, masks, autograd.

Here nothing is carried and nothing is put off: what a bracket needs lies in a list until it closes,
scores of kept tokens are one square with documents and the future masked out, and only the balancer
and the limiter, which are made of gradients, have a backward of their own. A sequence that is cut
into slices is selected from slice by slice; that is all that slices change.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from math import atanh, sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from penstock.arch.attention_rule import AttentionRule
from penstock.arch.config import ModelConfig
from penstock.arch.draws import Moment, Purpose
from penstock.arch.subsampling import Pair, Subsampling
from penstock.data.batch import IGNORE, Microbatch
from penstock.verify.plain_decoder import PlainLayer, PlainNorm, rotary_tables


class _Balanced(torch.autograd.Function):
    """Scores as they are, whose gradient is pushed."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, keep: float, counted: Tensor) -> Tensor:
        ctx.save_for_backward(scores, counted)
        ctx.keep = keep
        return scores.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        scores, counted = ctx.saved_tensors
        if not counted.any():
            return gradients[0], None, None
        with torch.enable_grad():
            own = scores[counted].detach().requires_grad_()
            mean, root = own.mean(), (own * own).mean().sqrt()
            ratio = mean / (own - mean).square().mean().clamp(min=1e-20).sqrt()
            low, high = (0.8139535 * atanh(2 * q - 1) for q in (ctx.keep - 0.05, ctx.keep + 0.05))
            bounded = root.clamp(1.2533, 4 * 1.2533)
            loss = (ratio - ratio.clamp(low, high)).abs() + (bounded / root).log().abs()
            (push,) = torch.autograd.grad(loss, own)
        size = (push * push).mean().sqrt().clamp(min=1e-20)
        spread = torch.zeros_like(scores).masked_scatter(counted, push * 0.04 / size)
        return gradients[0] + gradients[0].abs() * spread, None, None


class _Limited(torch.autograd.Function):
    """A bypass as it is, whose gradient does not lead out of the range."""

    @staticmethod
    def forward(ctx: Any, scale: Tensor, least: float) -> Tensor:
        ctx.save_for_backward(scale)
        ctx.least = least
        return scale.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (scale,), (g,) = ctx.saved_tensors, gradients
        turned = ((scale < ctx.least) & (g > 0)) | ((scale > 1) & (g < 0))
        return torch.where(turned, -g, g), None


class _Opened(NamedTuple):
    """A bracket on its way to where it closes."""

    x: Tensor
    tokens: "_Tokens"
    kept: Tensor
    weights: Tensor


class _Tokens(NamedTuple):
    """The tokens that are there: of each its place, its document, and whether it counts."""

    positions: Tensor
    documents: Tensor
    counted: Tensor
    lengths: tuple[int, ...]
    """Of each slice."""

    def on(self, device: torch.device) -> "_Tokens":
        places, documents, counted = (each.to(device) for each in self[:3])
        return _Tokens(places, documents, counted, self.lengths)

    def take(self, kept: Tensor, lengths: Sequence[int]) -> "_Tokens":
        places, documents, counted = (each.gather(1, kept) for each in self[:3])
        return _Tokens(places, documents, counted, tuple(lengths))


def plain_selection(scores: Tensor, count: int, turned: bool) -> tuple[Tensor, Tensor]:
    """The kept tokens of one row and their weights, as the paper's text goes."""
    values = scores.tolist()
    order = sorted(range(len(values)), key=lambda token: -values[token])
    clamped = scores.clamp(0, 1)
    missed = [clamped[token] for token in order[count : 2 * count]]
    missed += [torch.zeros_like(clamped[0])] * (count - len(missed))
    if turned:
        missed.reverse()
    weights = {token: clamped[token] - less for token, less in zip(order[:count], missed)}
    kept = sorted(weights)
    places = torch.tensor(kept, device=scores.device)
    return places, torch.stack([weights[token] for token in kept])


class PlainSubsampled:
    """One forward of a microbatch; `weights` by their stored names."""

    def __init__(self, model: ModelConfig, weights: Mapping[str, Tensor], moment: Moment) -> None:
        assert model.subsampling is not None
        self.model, self.weights, self.moment = model, weights, moment
        self.subsampling: Subsampling = model.subsampling
        self.opened: list[_Opened] = []

    def logits(self, microbatch: Microbatch, lengths: Sequence[int]) -> Tensor:
        x = self.weights["model.embed_tokens.weight"][microbatch.tokens]
        tokens = _all_tokens(microbatch, lengths).on(x.device)
        for layer in range(self.model.layers):
            for pair in self.subsampling.opened(layer):
                x, tokens = self._open(pair, x, tokens)
            x = self._layer(layer, x, tokens)
            for pair in self.subsampling.closed(layer):
                x, tokens = self._close(pair, x)
        norm = PlainNorm(self.model.hidden, self.model)
        x = functional_call(norm, {"weight": self.weights["model.norm.weight"]}, (x,))
        head = "model.embed_tokens.weight" if self.model.tied else "lm_head.weight"
        return functional.linear(x, self.weights[head])

    def _layer(self, number: int, x: Tensor, tokens: _Tokens) -> Tensor:
        positions, prefix = tokens.positions, f"model.layers.{number}."
        both = (each.to(x)[positions][:, None] for each in rotary_tables(self.model, _most(tokens)))
        hidden = positions[:, None, :, None] < positions[:, None, None]
        hidden |= tokens.documents[:, None, :, None] != tokens.documents[:, None, None]

        def masked(q: Tensor, k: Tensor, v: Tensor, _: AttentionRule) -> Tensor:
            share = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
            scores = q @ k.mT / sqrt(q.shape[-1])
            return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v

        with torch.device("meta"):
            layer = PlainLayer(self.model, masked, number)
        own = {name: self.weights[prefix + name] for name, _ in layer.named_parameters()}
        out: Tensor = functional_call(layer, own, (x, *both))
        return out

    def _open(self, pair: Pair, x: Tensor, tokens: _Tokens) -> tuple[Tensor, _Tokens]:
        scorer = self.weights[f"model.brackets.{pair.number}.scorer"]
        kept, weights, sizes, start = [], [], [], 0
        for length in tokens.lengths:
            inside = slice(start, start + length)
            scores = self._balanced(pair, x[:, inside] @ scorer, tokens.counted[:, inside])
            scores = torch.where(tokens.counted[:, inside], scores, -torch.inf)
            sizes.append(
                int((length + 1 / self.subsampling.keep - 1) * self.subsampling.keep + 1e-9)
            )
            turned = self.moment.draw(pair.number, Purpose.FLIP) < 0.5
            found = [plain_selection(row, sizes[-1], turned) for row in scores]
            kept.append(torch.stack([own for own, _ in found]) + start)
            weights.append(torch.stack([own for _, own in found]))
            start += length
        places, factors = torch.cat(kept, 1), torch.cat(weights, 1)
        self.opened.append(_Opened(x, tokens, places, factors))
        y = x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))
        return y, tokens.take(places, sizes)

    def _balanced(self, pair: Pair, scores: Tensor, counted: Tensor) -> Tensor:
        chance = 1 - 0.75 * min(self.moment.step / self.subsampling.balancer_steps, 1)
        if self.moment.draw(pair.number, Purpose.BALANCER) >= chance:
            return scores
        pushed: Tensor = _Balanced.apply(scores, self.subsampling.keep, counted)  # type: ignore[no-untyped-call]
        return pushed

    def _close(self, pair: Pair, y: Tensor) -> tuple[Tensor, _Tokens]:
        x, tokens, kept, weights = self.opened.pop()
        places = kept[..., None].expand_as(y)
        zeros = torch.zeros_like(x)
        spread = torch.zeros_like(x[..., 0]).scatter(1, kept, weights)[..., None]
        z = zeros.scatter(1, places, weights[..., None] * y) + (1 - spread) * x
        scale = self.weights[f"model.brackets.{pair.number}.bypass"]
        cuts = [*accumulate(tokens.lengths, initial=0)]
        outs = [
            old + (new - old) * self._limited(pair, scale)
            for old, new in ((x[:, start:end], z[:, start:end]) for start, end in pairwise(cuts))
        ]
        return torch.cat(outs, 1), tokens

    def _limited(self, pair: Pair, scale: Tensor) -> Tensor:
        """For each slice anew: its gradient is looked at by itself."""
        if self.moment.draw(pair.number, Purpose.LIMITER) >= 0.6:
            return scale
        least = 0.9 - 0.7 * min(self.moment.step / self.subsampling.bypass_steps, 1)
        limited: Tensor = _Limited.apply(scale, least)  # type: ignore[no-untyped-call]
        return limited


def subsampled_loss(
    model: ModelConfig,
    weights: Mapping[str, Tensor],
    microbatch: Microbatch,
    lengths: Sequence[int],
    number: int,
) -> Tensor:
    """The summed loss of the microbatch of that number in a first step."""
    assert model.subsampling is not None
    decoder = PlainSubsampled(model, weights, Moment(model.subsampling.seed, 0, number))
    logits = decoder.logits(microbatch, lengths).flatten(0, 1)
    labels = microbatch.labels.to(logits.device).flatten()
    return functional.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")


def _all_tokens(microbatch: Microbatch, lengths: Sequence[int]) -> _Tokens:
    rows, length = microbatch.rows, microbatch.length
    positions = torch.arange(length).expand(rows, -1)
    documents = torch.stack(
        [
            torch.bucketize(torch.arange(length), torch.tensor(starts), right=True)
            for starts in microbatch.documents
        ]
    )
    labelled = torch.zeros(rows, length + 1, dtype=torch.bool)
    labelled.scatter_(1, torch.where(microbatch.labels != IGNORE, documents, length), True)
    alone = torch.tensor([len(starts) == 1 for starts in microbatch.documents])[:, None]
    return _Tokens(positions, documents, labelled.gather(1, documents) | alone, tuple(lengths))


def _most(tokens: _Tokens) -> int:
    return int(tokens.positions.max()) + 1

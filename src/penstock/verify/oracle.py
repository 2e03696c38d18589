"""The judge: loss and gradients of a whole batch, computed the plain way in one process.

A runtime that cuts sequences, merges partial softmaxes and writes its own backward is right only if
it agrees with something that does none of this. So everything here is spelled out in elementary
operations and left to autograd: whole sequences, scores as one square matrix with a triangle masked
out, the textbook cross entropy. Nothing is imported from the model or from the executor.

A document of a packed sequence is simply run on its own, from position 0: rotary positions are
relative, so where a document lies in its sequence must make no difference.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from penstock.arch.config import ModelConfig
from penstock.data.batch import IGNORE, Microbatch
from penstock.errors import ShapeError

Named = dict[str, Tensor]
"""Tensors by the name of their parameter."""


class Answer(NamedTuple):
    """What a training step has to arrive at."""

    loss: float
    """Mean over all labels of the batch that count."""
    gradients: Named


def answer(
    model: ModelConfig, parameters: Mapping[str, Tensor], batch: Sequence[Microbatch]
) -> Answer:
    """Loss and gradients of a batch, in the type of the parameters."""
    _refuse_unknown(model)
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    labels = sum(microbatch.valid for microbatch in batch)
    if not labels:
        raise ShapeError("no label of the batch counts, so it has no mean loss")
    total = 0.0
    for tokens, targets in _documents(batch):
        logits = _logits(model, leaves, tokens)
        loss = functional.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum")
        (loss / labels).backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return Answer(total / labels, {name: _gradient(leaf) for name, leaf in leaves.items()})


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _refuse_unknown(model: ModelConfig) -> None:
    if not model.gated or model.rope_scaling is not None or model.window is not None:
        raise ShapeError(
            "the oracle has a gated MLP, unscaled rotary positions and no sliding window",
            hint="leave out rope_scaling and window, and give gated=True",
        )


def _documents(batch: Sequence[Microbatch]) -> list[tuple[Tensor, Tensor]]:
    """Tokens and labels of every document, each on its own."""
    return [
        (microbatch.tokens[row, start:end], microbatch.labels[row, start:end])
        for microbatch in batch
        for row, starts in enumerate(microbatch.documents)
        for start, end in zip(starts, (*starts[1:], microbatch.length))
    ]


def _logits(model: ModelConfig, weights: Named, tokens: Tensor) -> Tensor:
    x = functional.embedding(tokens, weights["model.embed_tokens.weight"])
    for layer in range(model.layers):
        prefix = f"model.layers.{layer}."
        own = {name[len(prefix) :]: w for name, w in weights.items() if name.startswith(prefix)}
        x = x + _attention(model, own, _norm(model, x, own["input_layernorm.weight"]))
        x = x + _mlp(own, _norm(model, x, own["post_attention_layernorm.weight"]))
    x = _norm(model, x, weights["model.norm.weight"])
    return x @ weights["model.embed_tokens.weight" if model.tied else "lm_head.weight"].T


def _norm(model: ModelConfig, x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + model.norm_epsilon).sqrt() * weight


def _mlp(weights: Named, x: Tensor) -> Tensor:
    gate, up = x @ weights["mlp.gate_proj.weight"].T, x @ weights["mlp.up_proj.weight"].T
    return (gate * torch.sigmoid(gate) * up) @ weights["mlp.down_proj.weight"].T


def _attention(model: ModelConfig, weights: Named, x: Tensor) -> Tensor:
    """Softmax over a square of scores, one per query and key of the document."""
    q, k, v = (_heads(model, weights, x, letter) for letter in "qkv")
    share = model.heads // model.kv_heads
    k, v = k.repeat_interleave(share, 0), v.repeat_interleave(share, 0)
    scores = q @ k.mT / sqrt(model.head_size)
    later = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    seen = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
    return seen.transpose(0, 1).flatten(1) @ weights["self_attn.o_proj.weight"].T


def _heads(model: ModelConfig, weights: Named, x: Tensor, letter: str) -> Tensor:
    """Queries, keys or values, [heads, tokens, head_size]; values are not turned."""
    y = x @ weights[f"self_attn.{letter}_proj.weight"].T
    bias = weights.get(f"self_attn.{letter}_proj.bias")
    y = (y if bias is None else y + bias).view(len(x), -1, model.head_size).transpose(0, 1)
    if letter == "v":
        return y
    scale = weights.get(f"self_attn.{letter}_norm.weight")
    return _turned(model, y if scale is None else _norm(model, y, scale))


def _turned(model: ModelConfig, x: Tensor) -> Tensor:
    """Rotary positions: the halves of a head are real and imaginary parts, turned by an angle."""
    pairs = model.head_size // 2
    frequencies = model.rope_theta ** (-torch.arange(pairs, dtype=x.dtype) / pairs)
    angles = torch.outer(torch.arange(x.shape[-2], dtype=x.dtype), frequencies)
    turn = torch.polar(torch.ones_like(angles), angles)
    turned = torch.complex(x[..., :pairs], x[..., pairs:]) * turn
    return torch.cat((turned.real, turned.imag), -1)

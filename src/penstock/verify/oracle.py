"""The judge: loss and gradients of a whole batch, computed the plain way in one process.

A runtime that cuts sequences, merges partial softmaxes and writes its own backward is right only if
it agrees with something that does none of this. So the plain decoder is asked, with its attention
spelled out, and the rest is left to autograd: whole sequences, scores as one square matrix with a
triangle masked out, the textbook cross entropy. Nothing is imported from the model or from the
executor.

A document of a packed sequence is simply run on its own, from position 0: rotary positions are
relative, so where a document lies in its sequence must make no difference.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from penstock.arch.config import ModelConfig
from penstock.data.batch import IGNORE, Microbatch
from penstock.errors import ShapeError
from penstock.verify.plain_decoder import PlainStage, square_attention, stored_name

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
    """Loss and gradients of a batch, in the type of the parameters and where they are."""
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    labels = sum(microbatch.valid for microbatch in batch)
    if not labels:
        raise ShapeError("no label of the batch counts, so it has no mean loss")
    decoder, total = whole_decoder(model, max(each.length for each in batch)), 0.0
    device = next(iter(leaves.values())).device
    for tokens, targets in _documents(batch, device):
        logits = document_logits(decoder, leaves, tokens)
        loss = functional.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum")
        (loss / labels).backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return Answer(total / labels, {name: _gradient(leaf) for name, leaf in leaves.items()})


def whole_decoder(model: ModelConfig, length: int) -> PlainStage:
    """The plain decoder for documents up to a length; it is lent its weights in every call."""
    with torch.device("meta"):
        return PlainStage(model, range(model.layers), length, square_attention)


def document_logits(decoder: PlainStage, weights: Mapping[str, Tensor], tokens: Tensor) -> Tensor:
    """Logits of one document, from weights by their stored names."""
    own = {name: weights[stored_name(name)] for name, _ in decoder.named_parameters()}
    logits: Tensor = functional_call(decoder, own, (tokens[None],))[0]
    return logits


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _documents(batch: Sequence[Microbatch], device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Tokens and labels of every document, each on its own."""
    placed = [
        microbatch._replace(
            tokens=microbatch.tokens.to(device), labels=microbatch.labels.to(device)
        )
        for microbatch in batch
    ]
    return [
        (microbatch.tokens[row, start:end], microbatch.labels[row, start:end])
        for microbatch in placed
        for row, starts in enumerate(microbatch.documents)
        for start, end in zip(starts, (*starts[1:], microbatch.length))
    ]

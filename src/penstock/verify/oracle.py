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
from penstock.verify.plain_experts import scores_in, weighted_balance
from penstock.verify.plain_subsampling import subsampled_loss

Named = dict[str, Tensor]
"""Tensors by the name of their parameter."""


class Answer(NamedTuple):
    """What a training step has to arrive at."""

    loss: float
    """Mean over all labels of the batch that count."""
    gradients: Named


def answer(
    model: ModelConfig,
    parameters: Mapping[str, Tensor],
    batch: Sequence[Microbatch],
    slices: Sequence[Sequence[int]] = (),
) -> Answer:
    """Loss and gradients of a batch, in the type of the parameters and where they are; gradients of
    what is trained. Where a model leaves out tokens, `slices` are those of each microbatch."""
    leaves = {name: value.clone() for name, value in parameters.items()}
    adapters = [name for name in leaves if ".lora_" in name]
    trained = {name: leaves[name].requires_grad_() for name in adapters or leaves}
    labels = sum(microbatch.valid for microbatch in batch)
    if not labels:
        raise ShapeError("no label of the batch counts, so it has no mean loss")
    decoder, total = whole_decoder(model, max(each.length for each in batch)), 0.0
    device = next(iter(leaves.values())).device
    for number, microbatch in enumerate(batch):
        parts, scores = [], []
        if model.subsampling is not None:
            own = slices[number] if slices else (microbatch.length,)
            parts.append(subsampled_loss(model, leaves, microbatch, own, number) / labels)
        for tokens, targets in () if model.subsampling else _documents(microbatch, device):
            logits = document_logits(decoder, merged_adapters(model, leaves), tokens)
            parts.append(document_loss(logits, targets) / labels)
            scores += scores_in(decoder)
        balance = weighted_balance(model.mixture, scores, microbatch.valid / labels)
        loss = torch.stack(parts).sum() + balance
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return Answer(total, {name: _gradient(leaf) for name, leaf in trained.items()})


def document_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The cross entropy of the labels that count."""
    return functional.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum")


def merged_adapters(model: ModelConfig, weights: Mapping[str, Tensor]) -> Named:
    """Weights without adapters that compute the same: W + alpha / rank B A."""
    merged = {name: value for name, value in weights.items() if ".lora_" not in name}
    for name, value in merged.items():
        down, up = (f"{name.removesuffix('.weight')}.lora_{side}.weight" for side in "AB")
        if down in weights and model.lora is not None:
            added = weights[up] @ weights[down]
            merged[name] = value + model.lora.alpha / model.lora.rank * added
    return merged


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


def _documents(microbatch: Microbatch, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Tokens and labels of every document, each on its own."""
    tokens, labels = microbatch.tokens.to(device), microbatch.labels.to(device)
    return [
        (tokens[row, start:end], labels[row, start:end])
        for row, starts in enumerate(microbatch.documents)
        for start, end in zip(starts, (*starts[1:], microbatch.length))
    ]

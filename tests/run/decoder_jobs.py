"""Decoders of transformers that have no record here, whole and as stages of a pipeline."""

import os
from typing import Any

import torch
from torch import Tensor

import penstock

os.environ.setdefault("HF_HUB_OFFLINE", "1")

WORDS, ROWS, LENGTH, LAYERS = 29, 8, 12, 4
Named = dict[str, Tensor]

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "vocab_size": WORDS,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}

DECODERS: dict[str, dict[str, Any]] = {
    "gpt_neox": {"intermediate_size": 24, "hidden_dropout": 0.0, "tie_word_embeddings": False},
    "gpt2": {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0},  # tied
    "opt": {"ffn_dim": 24, "dropout": 0.0, "word_embed_proj_dim": 12},  # tied, projections
    "cohere": {"intermediate_size": 24, "num_key_value_heads": 2, "logit_scale": 0.25},  # tied
    "stablelm": {
        "intermediate_size": 24,
        "num_key_value_heads": 2,
        "use_qkv_bias": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 500.0,
            "partial_rotary_factor": 0.5,
        },
    },
    "falcon": {"alibi": True, "hidden_dropout": 0.0, "attention_dropout": 0.0},  # tuples, tied
    "bloom": {"hidden_dropout": 0.0, "attention_dropout": 0.0},  # a norm behind the embedding
    "granite": {"intermediate_size": 24, "embedding_multiplier": 3.0, "logits_scaling": 2.0},
    "starcoder2": {"intermediate_size": 24, "num_key_value_heads": 2, "sliding_window": 5},
}
"""By their model_type, what else their configurations say."""


def decoder(kind: str) -> Any:
    """A model of a kind, the same on every call, in double precision and as it trains."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, **SIZES, **DECODERS[kind])
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float64)
        for weight in model.parameters():  # zeros and ones of a fresh model hide mistakes
            torch.nn.init.normal_(weight, std=0.3)
    return model.train()


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Words and those that follow; microbatches in which unequal numbers of labels count."""
    numbers = torch.Generator().manual_seed(step)
    words = torch.randint(WORDS, (ROWS, LENGTH), generator=numbers)
    labels = words.roll(-1, 1)
    labels[:, -1] = -100
    labels[0, 3:] = -100
    labels[2:4] = -100  # with four microbatches, nothing counts in one of them
    return words, labels


def documents() -> Tensor:
    """Positions of two documents in every second row."""
    positions = torch.arange(LENGTH).repeat(ROWS, 1)
    positions[::2, 5:] -= 5
    return positions


def theirs(model: Any, step: int, **keywords: Tensor) -> Tensor:
    """The mean loss of all tokens that count, by transformers alone."""
    words, labels = batch(step)
    logits = model(input_ids=words, use_cache=False, **keywords).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def one_process(kind: str, steps: int) -> tuple[list[float], Named, Named]:
    """Losses of some steps, gradients of the first and weights after the last."""
    model = decoder(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, gradients = [], {}
    for step in range(steps):
        loss = theirs(model, step)
        loss.backward()
        gradients = gradients or {name: weight.grad.clone() for name, weight in _named(model)}
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses, gradients, dict(_named(model))


def _named(model: Any) -> list[tuple[str, Any]]:
    """Weights by their names; what is tied stands under both."""
    return [*model.named_parameters(remove_duplicate=False)]


def train(
    _: object, kind: str, schedule: penstock.Schedule, steps: int
) -> tuple[list[float], list[tuple[str, Tensor]], list[tuple[str, Tensor]]]:
    """The same over ranks, with names and values of what this rank holds."""
    pipeline = penstock.pipeline(
        penstock.run.decoder_stages(decoder(kind), schedule.shape.stages),
        schedule,
        loss=penstock.run.token_loss,
        weight=penstock.run.token_count,
    )
    optimizer = torch.optim.AdamW(pipeline.parameters(), lr=0.01)
    losses: list[float] = []
    gradients: list[tuple[str, Tensor]] = []
    for step in range(steps):
        losses.append(pipeline.step(batch(step)))
        gradients = gradients or [
            (n, w.grad.clone()) for n, w in _held(pipeline) if w.grad is not None
        ]
        optimizer.step()
        optimizer.zero_grad()
    pipeline.close()
    return losses, gradients, [(name, weight.detach()) for name, weight in _held(pipeline)]


def _held(pipeline: Any) -> list[tuple[str, Tensor]]:
    return [
        (name.removeprefix("model."), weight)
        for stage in pipeline.stages.values()
        for name, weight in stage.named_parameters()
    ]


def with_documents(_: object, kind: str, schedule: penstock.Schedule) -> float:
    """The loss of rows with several documents."""
    pipeline = penstock.pipeline(
        penstock.run.decoder_stages(decoder(kind), schedule.shape.stages),
        schedule,
        loss=penstock.run.token_loss,
        weight=penstock.run.token_count,
    )
    loss = pipeline.step(batch(0), position_ids=documents())
    pipeline.close()
    return loss

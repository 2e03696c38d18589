"""Models with experts of the transformers library, by the names of their checkpoints.

In memory the library keeps the experts of a layer in one tensor of three axes; in files each expert
has matrices of its own, as here.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from model.peers import SMALL, Json, peer
from penstock.arch.layers.expert_mlp import BLOCK_NAMES, MATRIX_NAMES

MIXTURES: dict[str, Json] = {
    "mixtral": {
        "model_type": "mixtral",
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "router_aux_loss_coef": 0.07,
        "output_router_logits": True,
        "rope_theta": 1e6,
    },
    "mixtral, no auxiliary loss": {
        "model_type": "mixtral",
        "num_local_experts": 4,
        "num_experts_per_tok": 3,
        "tie_word_embeddings": True,
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 24,
        "norm_topk_prob": True,
        "router_aux_loss_coef": 0.05,
        "output_router_logits": True,
        "head_dim": 16,
    },
    "qwen3_moe, weights as they are": {
        "model_type": "qwen3_moe",
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "norm_topk_prob": False,
        "router_aux_loss_coef": 0.05,
        "output_router_logits": True,
        "head_dim": 8,
        "tie_word_embeddings": True,
    },
}
"""Every family with experts, with every part that makes one differ from another."""


def mixture_peer(variant: str, dtype: torch.dtype = torch.float32) -> Any:
    """transformers' model, with experts one by one: its kernel for all of them has no 64 bits."""
    model = peer(stated_mixture(variant), dtype=dtype)
    model.set_experts_implementation("eager")
    return model


def stated_mixture(variant: str) -> Json:
    """The content of the variant's config.json."""
    return {**SMALL, **MIXTURES[variant]}


def by_file_name(family: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Parameters, or gradients, with a name for each expert's matrices; as they are in families
    without experts."""
    if family not in BLOCK_NAMES:
        return tensors
    return {
        new: each for name, value in tensors.items() for new, each in _split(family, name, value)
    }


def _split(family: str, name: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    block, (gate, up, down) = BLOCK_NAMES[family], MATRIX_NAMES[family]
    prefix, _, what = name.partition(".mlp.")
    if not what:
        yield name, value
    elif what == "gate.weight":
        yield f"{prefix}.{block}.gate.weight", value
    else:
        for expert, matrix in enumerate(value):
            own = f"{prefix}.{block}.experts.{expert}."
            halves = zip((gate, up), matrix.chunk(2)) if "gate_up" in what else [(down, matrix)]
            for part, half in halves:
                yield f"{own}{part}.weight", half


def gradients_by_file_name(model: Any, family: str) -> dict[str, Tensor]:
    return by_file_name(family, {n: p.grad for n, p in model.named_parameters()})

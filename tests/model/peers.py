"""The same model twice: in the transformers library with random weights, and here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from model.samples import Held
from penstock.arch.config import ModelConfig
from penstock.arch.parameter_layout import lay_out
from penstock.arch.parameters import EMBEDDING, HEAD, expected_shapes, stage_parameters
from penstock.data.batch import IGNORE, Microbatch
from penstock.model.io.fused_tensors import stored_rows
from penstock.model.stages.decoder import DecoderStage
from penstock.model.stages.weights import Weights

os.environ.setdefault("HF_HUB_OFFLINE", "1")

Json = dict[str, Any]

SMALL: Json = {
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

GEMMA: Json = {
    "head_dim": 8,
    "sliding_window": 7,
    "query_pre_attn_scalar": 12,
    "final_logit_softcapping": 4.0,
}
LONGROPE: Json = {
    "original_max_position_embeddings": 64,
    "rope_scaling": {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.1, 1.3, 1.7],
        "long_factor": [1.5, 3.0, 9.0, 20.0],
    },
}

VARIANTS: dict[str, Json] = {
    "llama": {"model_type": "llama"},
    "llama, all heads": {"model_type": "llama", "num_key_value_heads": 4},
    "llama, long": {"model_type": "llama", "rope_theta": 5e5, "rope_scaling": LLAMA3},
    "llama, linear, tied": {
        "model_type": "llama",
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        "tie_word_embeddings": True,
    },
    "llama, dynamic": {"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "llama, large heads": {"model_type": "llama", "head_dim": 24},
    "mistral": {"model_type": "mistral", "sliding_window": None, "rope_theta": 1e6},
    "mistral, window": {"model_type": "mistral", "sliding_window": 13, "head_dim": 12},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1e6, "rms_norm_eps": 1e-6},
    "qwen2, yarn, tied": {
        "model_type": "qwen2",
        "rope_scaling": YARN,
        "tie_word_embeddings": True,
    },
    "qwen2, windows of some": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 9,
        "max_window_layers": 1,
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 16, "rope_theta": 1e6},
    "qwen3, yarn, tied": {
        "model_type": "qwen3",
        "head_dim": 16,
        "rope_scaling": {**YARN, "truncate": False, "beta_fast": 8.0, "attention_factor": 1.4},
        "tie_word_embeddings": True,
    },
    "gemma2": {"model_type": "gemma2", **GEMMA, "attn_logit_softcapping": 3.0},
    "gemma2, tied, no caps": {
        "model_type": "gemma2",
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "sliding_window": 2,
        "tie_word_embeddings": True,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        **GEMMA,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "rope_theta": 1e6,
        "rope_local_base_freq": 5e3,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "phi3": {"model_type": "phi3", "sliding_window": 20},
    "phi3, a share of each head": {"model_type": "phi3", "partial_rotary_factor": 0.5},
    "phi3, longrope, short": {"model_type": "phi3", **LONGROPE},
    "phi3, longrope, long": {
        "model_type": "phi3",
        **LONGROPE,
        "original_max_position_embeddings": 32,
    },
    "olmo2": {"model_type": "olmo2", "rope_theta": 5e5},
}
"""Every family, with every part that makes one differ from another."""


def stated(variant: str) -> Json:
    """The content of the variant's config.json."""
    return deepcopy({**SMALL, **VARIANTS[variant]})  # transformers adds to what it is given


def peer(config: Json, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    """transformers' model of a config, every parameter random."""
    from transformers import AutoConfig, AutoModelForCausalLM

    numbers = {key: value for key, value in config.items() if key != "model_type"}
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(config["model_type"], **numbers), attn_implementation="eager"
    ).to(dtype)
    stream = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        _randomise(parameter.data, stream, 0.0 if "gemma" in config["model_type"] else 0.8)
    return model.eval()


def _randomise(parameter: Tensor, stream: torch.Generator, mean: float) -> None:
    """Norms near one, biases of any sign, matrices that keep what passes through them in size.
    Every number is exact in 32 bits."""
    spread = parameter.shape[-1] ** -0.5 if parameter.dim() == 2 else 0.3
    parameter.copy_(torch.empty(parameter.shape).normal_(0, spread, generator=stream))
    if parameter.dim() == 1:
        parameter.add_(mean)


def named(model: Any) -> dict[str, Tensor]:
    """The model's parameters, a tied head left out."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def in_files(config: ModelConfig, tensors: dict[str, Tensor], name: str) -> Tensor:
    """A parameter of ours, of tensors as files have them; a tied head is the embedding."""
    place = stored_rows(config)[EMBEDDING if config.tied and name == HEAD else name]
    return place.cut(tensors[place.name])


def as_ours(config: ModelConfig, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """All parameters of ours, of tensors as files have them."""
    return {name: in_files(config, tensors, name) for name in expected_shapes(config)}


def whole_stage(config: ModelConfig, tensors: dict[str, Tensor], length: int) -> Held:
    """All layers as one stage with these parameters; a tied head is a copy of its own."""
    dtype = next(iter(tensors.values())).dtype
    layers = range(config.layers)
    layout = lay_out(stage_parameters(config, layers, 0, 1))
    cpu = torch.device("cpu")
    weights = Weights.empty(layout, dtype=dtype, main=dtype, device=cpu)
    for name, view in weights.named(weights.main).items():
        view.copy_(in_files(config, tensors, name))
    weights.publish()
    stage = DecoderStage(config, layers, layout, length=length, like=weights.value)
    return Held.of(stage, weights)


@contextmanager
def in_64_bits() -> Iterator[None]:
    """Lets transformers compute in 64 bits, of which it rounds norms, softmax and rotary angles to
    32, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(usual)


def sentences(rows: int, length: int, vocabulary: int) -> Microbatch:
    """Random tokens; each one's label is the next, and the last of a row has none."""
    stream = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, vocabulary, (rows, length), generator=stream)
    labels = torch.cat((tokens[:, 1:], torch.full((rows, 1), IGNORE)), dim=1)
    return Microbatch(tokens, labels, ((0,),) * rows)

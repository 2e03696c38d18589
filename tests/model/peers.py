"""The same model twice: in the transformers library with random weights, and here."""

import os
from typing import Any

import torch
from torch import Tensor

from model.samples import Held
from penstock.arch.config import ModelConfig
from penstock.arch.parameter_layout import lay_out
from penstock.arch.parameters import EMBEDDING, HEAD, stage_parameters
from penstock.data.batch import IGNORE, Microbatch
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
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

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
    "mistral, window": {"model_type": "mistral", "sliding_window": 48, "head_dim": 12},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1e6, "rms_norm_eps": 1e-6},
    "qwen2, yarn, tied": {
        "model_type": "qwen2",
        "rope_scaling": YARN,
        "tie_word_embeddings": True,
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 16, "rope_theta": 1e6},
    "qwen3, yarn, tied": {
        "model_type": "qwen3",
        "head_dim": 16,
        "rope_scaling": {**YARN, "truncate": False, "beta_fast": 8.0, "attention_factor": 1.4},
        "tie_word_embeddings": True,
    },
}
"""Every family, with every part that makes one differ from another."""


def stated(variant: str) -> Json:
    """The content of the variant's config.json."""
    return {**SMALL, **VARIANTS[variant]}


def peer(config: Json, seed: int = 0) -> Any:
    """transformers' model of a config, in float32, every parameter random."""
    from transformers import AutoConfig, AutoModelForCausalLM

    numbers = {key: value for key, value in config.items() if key != "model_type"}
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(config["model_type"], **numbers), attn_implementation="eager"
    ).float()
    stream = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        _randomise(parameter.data, stream)
    return model.eval()


def _randomise(parameter: Tensor, stream: torch.Generator) -> None:
    """Norms near one, biases of any sign, matrices that keep what passes through them in size."""
    spread = parameter.shape[-1] ** -0.5 if parameter.dim() == 2 else 0.3
    parameter.normal_(0, spread, generator=stream)
    if parameter.dim() == 1:
        parameter.add_(0.8)


def named(model: Any) -> dict[str, Tensor]:
    """The model's parameters, a tied head left out."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def whole_stage(config: ModelConfig, tensors: dict[str, Tensor], length: int) -> Held:
    """All layers as one stage with these parameters; a tied head is a copy of its own."""
    layers = range(config.layers)
    layout = lay_out(stage_parameters(config, layers, 0, 1))
    cpu = torch.device("cpu")
    weights = Weights.empty(layout, dtype=torch.float32, main=torch.float32, device=cpu)
    for name, view in weights.named(weights.main).items():
        view.copy_(tensors[EMBEDDING if config.tied and name == HEAD else name])
    weights.publish()
    stage = DecoderStage(config, layers, layout, length=length, like=weights.value)
    return Held.of(stage, weights)


def sentences(rows: int, length: int, vocabulary: int) -> Microbatch:
    """Random tokens; each one's label is the next, and the last of a row has none."""
    stream = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, vocabulary, (rows, length), generator=stream)
    labels = torch.cat((tokens[:, 1:], torch.full((rows, 1), IGNORE)), dim=1)
    return Microbatch(tokens, labels, ((0,),) * rows)

"""Hugging Face's model families, one record each.

A family is one architecture with some parts of its own, spelled as a `config.json` with defaults of
its own. A record says which parts it has, which of its keys mean which fields of a model, and how
it spells windows; families.py reads and writes files by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.arch.huggingface_keys import FixedKeys
from penstock.arch.layers.attention import PROJECTION
from penstock.arch.layers.gated_mlp import GELU_TANH
from penstock.arch.layers.norm import AFTER, BOTH
from penstock.arch.mixture import ExpertMixture
from penstock.arch.mixture_keys import MIXTRAL, QWEN3_MOE, ROUTER_DEFAULTS, MixtureKeys
from penstock.arch.rope_keys import LOCAL_KEY, PLAIN_THETA, SHARE_KEY
from penstock.arch.rope_scaling import NUMBERS
from penstock.arch.window_keys import (
    NO_WINDOW,
    PATTERN_KEYS,
    PLAIN_WINDOW,
    SWITCHED_WINDOW,
    WINDOW_WHEN_SWITCHED,
    WindowRule,
    window_of_all,
    window_pattern,
)

SILU_KEYS: FixedKeys = {"hidden_act": ("silu", "the MLP is gated by silu")}
GEMMA_KEYS: FixedKeys = {
    "hidden_act": ("gelu_pytorch_tanh", "the MLP is gated by GELU, by its tanh approximation"),
    "hidden_activation": (
        *("gelu_pytorch_tanh", "the MLP is gated by GELU, by its tanh approximation"),
    ),
    "use_bidirectional_attention": (False, "a token attends to those before it"),
}
PHI_KEYS: FixedKeys = {
    **SILU_KEYS,
    "resid_pdrop": (0, "there is no dropout"),
    "embd_pdrop": (0, "there is no dropout"),
}
MIXTRAL_KEYS: FixedKeys = {
    **SILU_KEYS,
    "router_jitter_noise": (0.0, "routers have no noise"),
}
QWEN3_MOE_KEYS: FixedKeys = {
    **SILU_KEYS,
    "decoder_sparse_step": (1, "every layer has experts"),
    "mlp_only_layers": ([], "every layer has experts"),
}
CAP_KEYS: Mapping[str, str] = {
    "score_cap": "attn_logit_softcapping",
    "logit_cap": "final_logit_softcapping",
    "query_scalar": "query_pre_attn_scalar",
}
GEMMA: Mapping[str, Any] = {
    "activation": GELU_TANH,
    "norms": BOTH,
    "norm_adds_one": True,
    "scaled_embedding": True,
}
GEMMA_DEFAULTS: Mapping[str, Any] = {
    "num_key_value_heads": 4,
    "head_dim": 256,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
}


@dataclass(frozen=True)
class Family:
    """What a `model_type` stands for."""

    model_type: str
    architecture: str
    window: WindowRule
    defaults: Mapping[str, Any]
    """Of keys that its files may leave out."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a model that make it one of this family; other parts are as they usually are."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Fields that only this family has, and their keys."""
    fixed: FixedKeys = field(default_factory=lambda: SILU_KEYS)
    """Keys that have one value in this family, and why."""
    theta: float = PLAIN_THETA
    """Base of the rotary frequencies where a file leaves it out."""
    local_theta: float | None = None
    """The same for layers with a window, where these have one of their own."""
    without_effect: tuple[str, ...] = ()
    """Further keys that say nothing about what the model computes."""
    scalings: tuple[str, ...] = tuple(NUMBERS)
    """Ways to scale rotary positions that it knows."""
    mixture: MixtureKeys | None = None
    """Keys of its experts, where it has some."""

    def has(self, mixture: ExpertMixture | None) -> bool:
        """Whether its layers have these experts, or none where there are none."""
        own = self.mixture.family if self.mixture else None
        return own == (mixture.family if mixture else None)

    @property
    def own_keys(self) -> tuple[str, ...]:
        """Keys that other families do not have."""
        local = (LOCAL_KEY,) if self.local_theta is not None else ()
        experts = self.mixture.names if self.mixture else ()
        return (*self.keys.values(), *local, *experts, *self.without_effect)


FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        Family("llama", "LlamaForCausalLM", NO_WINDOW, {"max_position_embeddings": 2048}),
        Family(
            "mistral",
            "MistralForCausalLM",
            window_of_all(PLAIN_WINDOW),
            {"max_position_embeddings": 131072, "num_key_value_heads": 8},
        ),
        Family(
            "qwen2",
            "Qwen2ForCausalLM",
            SWITCHED_WINDOW,
            {"max_position_embeddings": 32768, "num_key_value_heads": 32},
            {"qkv_bias": True},
        ),
        Family(
            "qwen3",
            "Qwen3ForCausalLM",
            SWITCHED_WINDOW,
            {"max_position_embeddings": 32768, "num_key_value_heads": 32, "head_dim": 128},
            {"qk_norm": True},
        ),
        Family(
            "gemma2",
            "Gemma2ForCausalLM",
            window_pattern(2),
            {
                **GEMMA_DEFAULTS,
                "max_position_embeddings": 8192,
                "attn_logit_softcapping": 50.0,
                "final_logit_softcapping": 30.0,
            },
            GEMMA,
            CAP_KEYS,
            GEMMA_KEYS,
            without_effect=PATTERN_KEYS,
        ),
        Family(
            "gemma3_text",
            "Gemma3ForCausalLM",
            window_pattern(6),
            {**GEMMA_DEFAULTS, "max_position_embeddings": 131072},
            {**GEMMA, "qk_norm": True},
            {key: value for key, value in CAP_KEYS.items() if key != "score_cap"},
            GEMMA_KEYS,
            theta=1e6,
            local_theta=PLAIN_THETA,
            without_effect=PATTERN_KEYS,
        ),
        Family(
            "phi3",
            "Phi3ForCausalLM",
            window_of_all(None),
            {
                "max_position_embeddings": 4096,
                "original_max_position_embeddings": 4096,
                "rms_norm_eps": 1e-5,
            },
            {"fused_files": True},
            {"rotary_size": SHARE_KEY},
            fixed=PHI_KEYS,
            without_effect=("auto_map",),  # names code that is a part of transformers by now
            scalings=("longrope",),
        ),
        Family(
            "olmo2",
            "Olmo2ForCausalLM",
            NO_WINDOW,
            {"max_position_embeddings": 2048, "rms_norm_eps": 1e-5},
            {"norms": AFTER, "qk_norm": True, "qk_norm_over": PROJECTION},
        ),
        Family(
            "mixtral",
            "MixtralForCausalLM",
            window_of_all(None),
            {
                **ROUTER_DEFAULTS,
                "max_position_embeddings": 131072,
                "num_key_value_heads": 8,
                "rms_norm_eps": 1e-5,
                "num_local_experts": 8,
                "num_experts_per_tok": 2,
            },
            fixed=MIXTRAL_KEYS,
            theta=1e6,
            mixture=MIXTRAL,
        ),
        Family(
            "qwen3_moe",
            "Qwen3MoeForCausalLM",
            WINDOW_WHEN_SWITCHED,
            {
                **ROUTER_DEFAULTS,
                "max_position_embeddings": 32768,
                "num_key_value_heads": 4,
                "num_experts": 128,
                "num_experts_per_tok": 8,
                "moe_intermediate_size": 768,
                "norm_topk_prob": False,
            },
            {"qk_norm": True},
            fixed=QWEN3_MOE_KEYS,
            mixture=QWEN3_MOE,
        ),
    )
}

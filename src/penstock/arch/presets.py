"""Published models by name, as configurations."""

from dataclasses import replace

from penstock.arch.blocks import LayerBlock
from penstock.arch.config import ModelConfig
from penstock.arch.layers.attention import PROJECTION
from penstock.arch.layers.gated_mlp import GELU_TANH
from penstock.arch.layers.norm import AFTER, BOTH
from penstock.arch.mixture import ExpertMixture
from penstock.arch.rope_scaling import RopeScaling
from penstock.arch.subsampling import Subsampling
from penstock.errors import ShapeError, nearest


def _llama3(sizes: ModelConfig) -> ModelConfig:
    return replace(sizes, rope_theta=5e5, max_positions=8192)


def _to_128k(short: ModelConfig, factor: float) -> ModelConfig:
    """Llama 3.1 and 3.2 reach further by longer wavelengths."""
    scaling = RopeScaling("llama3", factor, short.max_positions)
    return replace(short, rope_scaling=scaling, max_positions=131072)


def _qwen2(sizes: ModelConfig, positions: int) -> ModelConfig:
    return replace(sizes, qkv_bias=True, rope_theta=1e6, norm_epsilon=1e-6, max_positions=positions)


def _qwen3(sizes: ModelConfig) -> ModelConfig:
    return replace(sizes, qk_norm=True, rope_theta=1e6, norm_epsilon=1e-6, max_positions=40960)


def _gemma(sizes: ModelConfig) -> ModelConfig:
    return replace(
        sizes,
        tied=True,
        norm_epsilon=1e-6,
        activation=GELU_TANH,
        norms=BOTH,
        norm_adds_one=True,
        scaled_embedding=True,
    )


def _gemma2(sizes: ModelConfig, query_scalar: float | None = None) -> ModelConfig:
    return replace(
        _gemma(sizes),
        query_scalar=query_scalar,
        score_cap=50.0,
        logit_cap=30.0,
        window=4096,
        window_pattern=(True, False),
        max_positions=8192,
    )


def _gemma3(sizes: ModelConfig, query_scalar: float | None = None) -> ModelConfig:
    """Five layers with a window to one without."""
    return replace(
        _gemma(sizes),
        query_scalar=query_scalar,
        qk_norm=True,
        rope_theta=1e6,
        rope_scaling=RopeScaling("linear", 8.0),
        local_rope_theta=1e4,
        window=1024,
        window_pattern=(True, True, True, True, True, False),
    )


def _olmo2(sizes: ModelConfig) -> ModelConfig:
    parts = replace(sizes, norms=AFTER, qk_norm=True, qk_norm_over=PROJECTION)
    return replace(parts, rope_theta=5e5, norm_epsilon=1e-6, max_positions=4096)


_LLAMA3_8B = _llama3(ModelConfig(32, 4096, 14336, 32, 8, 128, 128256))
_LLAMA3_70B = _llama3(ModelConfig(80, 8192, 28672, 64, 8, 128, 128256))
_LLAMA3_1B = _llama3(ModelConfig(16, 2048, 8192, 32, 8, 64, 128256, tied=True))
_LLAMA3_3B = _llama3(ModelConfig(28, 3072, 8192, 24, 8, 128, 128256, tied=True))
_GEMMA3_1B = _gemma3(ModelConfig(26, 1152, 6912, 4, 1, 256, 262144))
_PHI3_MINI = ModelConfig(32, 3072, 8192, 32, 32, 96, 32064, fused_files=True)
_PHI3_MEDIUM = ModelConfig(40, 5120, 17920, 40, 10, 128, 32064, fused_files=True)

_FUSED_RUN = (
    *(LayerBlock(192), LayerBlock(192)),
    *(LayerBlock(512, False, (192, 128, 192)), LayerBlock(192, False)),
)
"""Two layers with attention, three MLPs that are fused, and one behind them that stays."""

MODELS: dict[str, ModelConfig] = {
    "tiny": ModelConfig(4, 64, 192, 4, 2, 16, 256),
    "tiny-fused": ModelConfig(*(4, 64, 192, 4, 2, 16, 256), blocks=_FUSED_RUN),
    "llama-7b": ModelConfig(
        32, 4096, 11008, 32, 32, 128, 32000, norm_epsilon=1e-6, max_positions=2048
    ),
    "llama2-13b": ModelConfig(40, 5120, 13824, 40, 40, 128, 32000, max_positions=4096),
    "llama2-70b": ModelConfig(80, 8192, 28672, 64, 8, 128, 32000, max_positions=4096),
    "llama3-8b": _LLAMA3_8B,
    "llama3-70b": _LLAMA3_70B,
    "llama3.1-8b": _to_128k(_LLAMA3_8B, 8.0),
    "llama3.1-70b": _to_128k(_LLAMA3_70B, 8.0),
    "llama3.2-1b": _to_128k(_LLAMA3_1B, 32.0),
    "llama3.2-3b": _to_128k(_LLAMA3_3B, 32.0),
    "mistral-7b-v0.1": ModelConfig(
        32, 4096, 14336, 32, 8, 128, 32000, window=4096, max_positions=32768
    ),
    "mistral-7b-v0.3": ModelConfig(
        32, 4096, 14336, 32, 8, 128, 32768, rope_theta=1e6, max_positions=32768
    ),
    "qwen2.5-0.5b": _qwen2(ModelConfig(24, 896, 4864, 14, 2, 64, 151936, tied=True), 32768),
    "qwen2.5-7b": _qwen2(ModelConfig(28, 3584, 18944, 28, 4, 128, 152064), 131072),
    "qwen3-0.6b": _qwen3(ModelConfig(28, 1024, 3072, 16, 8, 128, 151936, tied=True)),
    "qwen3-8b": _qwen3(ModelConfig(36, 4096, 12288, 32, 8, 128, 151936)),
    "qwen3-32b": _qwen3(ModelConfig(64, 5120, 25600, 64, 8, 128, 151936)),
    "gemma2-2b": _gemma2(ModelConfig(26, 2304, 9216, 8, 4, 256, 256000)),
    "gemma2-9b": _gemma2(ModelConfig(42, 3584, 14336, 16, 8, 256, 256000)),
    "gemma2-27b": _gemma2(ModelConfig(46, 4608, 36864, 32, 16, 128, 256000), query_scalar=144.0),
    "gemma3-1b": replace(_GEMMA3_1B, rope_scaling=None, window=512, max_positions=32768),
    "gemma3-4b": _gemma3(ModelConfig(34, 2560, 10240, 8, 4, 256, 262208)),
    "gemma3-12b": _gemma3(ModelConfig(48, 3840, 15360, 16, 8, 256, 262208)),
    "gemma3-27b": _gemma3(ModelConfig(62, 5376, 21504, 32, 16, 128, 262208), query_scalar=168.0),
    "phi-3-mini": replace(_PHI3_MINI, window=2047, max_positions=4096),
    "phi-3-medium": replace(_PHI3_MEDIUM, window=2047, max_positions=4096),
    "phi-4": replace(_PHI3_MEDIUM, vocabulary=100352, rope_theta=250000.0, max_positions=16384),
    "mixtral-8x7b": ModelConfig(
        *(32, 4096, 14336, 32, 8, 128, 32000),
        rope_theta=1e6,
        max_positions=32768,
        mixture=ExpertMixture(8, 2, balance=0.02),
    ),
    "qwen3-30b-a3b": replace(
        _qwen3(ModelConfig(48, 2048, 768, 32, 4, 128, 151936)),
        mixture=ExpertMixture(128, 8, balance=0.001, family="qwen3_moe"),
    ),
    "subllm-1.3b": ModelConfig(
        *(24, 2048, 5504, 16, 16, 128, 32000),
        max_positions=4096,
        subsampling=Subsampling("TTTTT(TTTTT(TTTT)TTTTT)TTTTT"),
    ),
    "olmo2-7b": _olmo2(ModelConfig(32, 4096, 11008, 32, 32, 128, 100352)),
    "olmo2-13b": _olmo2(ModelConfig(40, 5120, 13824, 40, 40, 128, 100352)),
    "olmo2-32b": _olmo2(ModelConfig(64, 5120, 27648, 40, 8, 128, 100352)),
}
"""Published configurations by name, and two that fit a test."""


def model(name: str) -> ModelConfig:
    """The model of that name.

    >>> model("llama-7b").parameters
    6738415616
    """
    if name not in MODELS:
        raise ShapeError(f"no model is called {name!r}", hint=nearest(name, list(MODELS)))
    return MODELS[name]

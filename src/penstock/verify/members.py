"""A small member of a model's family: all of its parts, none of its sizes.

What a family has that others have not (windows of some layers, norms behind blocks, bounds on
scores) is in its smallest member as well as in its largest. Numbers are such that each of these
parts shows in the gradients of a tiny model: windows are shorter than slices are apart, bounds are
reached.
"""

from dataclasses import replace

from penstock.arch.blocks import LayerBlock
from penstock.arch.config import ModelConfig, with_layers
from penstock.arch.mixture import ExpertMixture
from penstock.verify.scale import TrialScale
from penstock.verify.variants import ON_DEVICE, Variant

WINDOW = 7
"""Tokens; slices of a trial have from 3 on, so a window reaches over several of them."""
CAP = 1.0
"""Scores and logits of a trial are about as large."""
LOCAL_THETA = 90.0
EXPERTS, BALANCE = 5, 0.5
KNOWN_SCALINGS = ("linear",)
"""Of rotary positions, which the plain decoder has too; others are compared with transformers."""


def small_member(config: ModelConfig, like: ModelConfig) -> ModelConfig:
    """A model with the parts of one and the sizes of another."""
    sizes = {
        name: getattr(like, name)
        for name in (
            *("layers", "hidden", "ffn", "heads", "head_size", "vocabulary", "norm_epsilon"),
            *("rope_theta", "max_positions", "element_bytes"),
        )
    }
    subsampling = config.subsampling
    if subsampling is not None:
        config = with_layers(config, subsampling.fewest)
        sizes["layers"] = config.layers
    grouped = config.kv_heads < config.heads
    scaling = config.rope_scaling
    return replace(
        config,
        **sizes,
        kv_heads=like.kv_heads if grouped else like.heads,
        rope_scaling=scaling if scaling and scaling.kind in KNOWN_SCALINGS else None,
        local_rope_theta=None if config.local_rope_theta is None else LOCAL_THETA,
        window=None if config.window is None else WINDOW * like.head_size // 4,
        score_cap=None if config.score_cap is None else CAP,
        logit_cap=None if config.logit_cap is None else CAP,
        query_scalar=None if config.query_scalar is None else 1.5 * like.head_size,
        mixture=None if config.mixture is None else few_experts(config.mixture),
        blocks=tuple(_narrow(block, config.ffn, like.ffn) for block in config.blocks),
    )


def _narrow(block: LayerBlock, ffn: int, width: int) -> LayerBlock:
    """A block of a small model; its MLP is as much wider than others as before."""
    return replace(block, ffn=block.ffn * width // ffn, fused=())


def few_experts(mixture: ExpertMixture) -> ExpertMixture:
    """Experts that nothing divides, and an auxiliary loss that weighs as much as the other."""
    return replace(mixture, experts=EXPERTS, per_token=2, balance=BALANCE)


def variants_of_member(config: ModelConfig, device: str) -> tuple[Variant, ...]:
    """Every variant on a kind of device, with a small member of a model's family."""
    return tuple(replace(each, scale=_with(config, each.scale)) for each in ON_DEVICE[device])


def _with(config: ModelConfig, scale: TrialScale) -> TrialScale:
    return replace(scale, model=small_member(config, scale.model))

"""The model that was fused, as the record of the fused one says."""

from dataclasses import replace

from penstock.arch.blocks import LayerBlock
from penstock.arch.config import ModelConfig
from penstock.errors import ShapeError


def unfused_model(model: ModelConfig) -> ModelConfig:
    """A layer for each MLP that was fused."""
    blocks = [model.block(layer) for layer in range(model.layers)]
    if not any(block.fused for block in blocks):
        raise ShapeError(
            f"no layer of the model, which has {model.layers}, is fused",
            hint="give a folder that `penstock fuse` has written",
        )
    found = tuple(part for block in blocks for part in _parts(block))
    windows: tuple[bool, ...] = ()
    if model.window_pattern:
        windows = tuple(
            model.has_window(layer)
            for layer, block in enumerate(blocks)
            for _ in range(len(block.fused) or 1)
        )
    return replace(model, layers=len(found), blocks=found, window_pattern=windows)


def _parts(block: LayerBlock) -> tuple[LayerBlock, ...]:
    return tuple(LayerBlock(width, False) for width in block.fused) or (block,)

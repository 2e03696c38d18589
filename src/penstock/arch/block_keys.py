"""Blocks of a model as `config.json` states them.

Hugging Face's families have layers that are alike, so a model with blocks has a `model_type` of its
own: other programs refuse it by name, instead of reading a part of it as something else.

    "model_type": "penstock_llama",
    "block_configs": [{"attention": true, "intermediate_size": 192},
                      {"attention": false, "intermediate_size": 512, "fused": [192, 128, 192]}]
"""

from collections.abc import Mapping
from typing import Any

from penstock.arch.blocks import LayerBlock
from penstock.arch.config import ModelConfig
from penstock.errors import ShapeError, shown

BLOCK_PREFIX = "penstock_"
"""In front of the family that the other parts of a model with blocks are of."""
ARCHITECTURE = "PenstockForCausalLM"
BLOCK_KEY = "block_configs"
_KEYS = {"attention": "attention", "intermediate_size": "ffn", "fused": "fused"}


def family_name(model_type: str) -> str:
    """The family that a model with blocks or without is of.

    >>> family_name("penstock_llama"), family_name("llama")
    ('llama', 'llama')
    """
    return model_type.removeprefix(BLOCK_PREFIX)


def read_blocks(config: Mapping[str, Any]) -> tuple[LayerBlock, ...]:
    """The blocks that a `config.json` states; none where its model is of a plain family."""
    stated, named = config.get(BLOCK_KEY), str(config.get("model_type")).startswith(BLOCK_PREFIX)
    if stated is None and not named:
        return ()
    if not named or not isinstance(stated, list):
        raise ShapeError(
            f"model_type is {shown(config.get('model_type'))} and {BLOCK_KEY} is {shown(stated)}",
            hint=f"a model_type that starts with {BLOCK_PREFIX!r} has blocks, others have none",
        )
    layers = config.get("num_hidden_layers")
    if not stated or not isinstance(layers, int) or layers % len(stated):
        raise ShapeError(
            f"{BLOCK_KEY} has {len(stated)} blocks, but num_hidden_layers is {shown(layers)}",
            hint="give a block for each layer, or a pattern that is repeated along the model",
        )
    return tuple(_block(number, each) for number, each in enumerate(stated))


def _block(number: int, stated: Any) -> LayerBlock:
    if not isinstance(stated, dict) or not {"intermediate_size"} <= {*stated} <= {*_KEYS}:
        raise ShapeError(
            f"{BLOCK_KEY}: block {number} is {shown(stated)}",
            hint=f"a block has intermediate_size, and may have {', '.join(_KEYS)}",
        )
    values = {_KEYS[key]: value for key, value in stated.items()}
    if isinstance(values.get("fused"), list):
        values["fused"] = tuple(values["fused"])
    try:
        return LayerBlock(**values)
    except ShapeError as error:
        where = f"{BLOCK_KEY}: block {number}: {error.message}"
        raise ShapeError(where, hint=error.hint) from error


def write_blocks(config: ModelConfig, model_type: str) -> dict[str, Any]:
    """What the `config.json` of a model with blocks has that is its own."""
    if not config.blocks:
        return {}
    every = (
        config.blocks
        if not config.layers % len(config.blocks)
        else tuple(map(config.block, range(config.layers)))
    )
    return {
        "architectures": [ARCHITECTURE],
        "model_type": BLOCK_PREFIX + model_type,
        BLOCK_KEY: [_written(block) for block in every],
    }


def _written(block: LayerBlock) -> dict[str, Any]:
    fused = {"fused": [*block.fused]} if block.fused else {}
    return {"attention": block.attention, "intermediate_size": block.ffn, **fused}

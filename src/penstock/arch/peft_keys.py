"""Adapters as PEFT describes them in an `adapter_config.json`, and as we do.

A key that makes other adapters than ours is refused by name: what is read is that adapter.
"""

from collections.abc import Mapping
from typing import Any

from penstock.arch.lora import Lora
from penstock.errors import ShapeError, shown

PREFIX = "base_model.model."
"""What PEFT puts in front of the names of a model's modules."""
_NEUTRAL: tuple[Any, ...] = (None, False, "", [], {}, "none")
"""Values that switch nothing on."""
_SWITCHES = (
    *("bias", "fan_in_fan_out", "use_rslora", "use_dora", "modules_to_save", "rank_pattern"),
    *("alpha_pattern", "layers_to_transform", "exclude_modules", "layer_replication", "lora_bias"),
    *("trainable_token_indices", "target_parameters", "use_qalora"),
)
"""Keys that change what adapters compute, or where they are."""


def to_peft(lora: Lora, base: str) -> dict[str, Any]:
    """The content of an `adapter_config.json`; `base` is the folder of the model, or nothing."""
    alpha = int(lora.alpha) if lora.alpha.is_integer() else lora.alpha
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base or None,
        "r": lora.rank,
        "lora_alpha": alpha,
        "target_modules": list(lora.targets),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "modules_to_save": None,
        "layers_to_transform": None,
        "layers_pattern": None,
        "rank_pattern": {},
        "alpha_pattern": {},
        "use_rslora": False,
        "use_dora": False,
        "revision": None,
    }


def from_peft(stated: Mapping[str, Any]) -> Lora:
    """The adapters that the content of an `adapter_config.json` describes.

    >>> from_peft({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]})
    Lora(rank=8, alpha=16.0, targets=('q_proj',))
    """
    if stated.get("peft_type") != "LORA":
        raise ShapeError(
            f"peft_type is {shown(str(stated.get('peft_type')))}", hint="adapters of LORA are read"
        )
    for key in _SWITCHES:
        if stated.get(key) not in _NEUTRAL:
            raise ShapeError(
                f"{key} is {shown(str(stated[key]))}, which changes the adapters in a way that is "
                "not supported",
                hint="save adapters of plain LoRA on linear layers",
            )
    size, alpha, targets = (stated.get(key) for key in ("r", "lora_alpha", "target_modules"))
    if not isinstance(targets, list) or not all(isinstance(each, str) for each in targets):
        raise ShapeError(
            f"target_modules is {shown(str(targets))}", hint="give a list of names of modules"
        )
    if not isinstance(size, int) or not isinstance(alpha, int | float):
        raise ShapeError(
            f"r is {shown(str(size))} and lora_alpha {shown(str(alpha))}", hint="give numbers"
        )
    return Lora(size, float(alpha), tuple(sorted(targets)))

"""A model that leaves out tokens in a `config.json`: the keys of its family, and one of our own.

transformers has no such architecture, so files say `model_type` "subllm", which it does not know:
the model without its brackets is another one, and must not be loaded by mistake.

    {"model_type": "subllm", "base_model_type": "llama", "subsampling": {"structure": ...}, ...}
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from penstock.arch.subsampling import Subsampling
from penstock.errors import ShapeError, nearest, shown

MODEL_TYPE = "subllm"
_BASE, _KEY = "base_model_type", "subsampling"
_ARCHITECTURE = "SubllmForCausalLM"


def write_subsampling(stated: Mapping[str, Any], subsampling: Subsampling | None) -> dict[str, Any]:
    """What a family states of a model, with its brackets."""
    if subsampling is None:
        return dict(stated)
    own = {"model_type": MODEL_TYPE, "architectures": [_ARCHITECTURE]}
    return {**stated, **own, _BASE: stated["model_type"], _KEY: asdict(subsampling)}


def read_subsampling(stated: Mapping[str, Any]) -> tuple[dict[str, Any], Subsampling | None]:
    """What a family states of a model, and its brackets."""
    if stated.get("model_type") != MODEL_TYPE:
        return dict(stated), None
    table = stated.get(_KEY)
    if not isinstance(table, Mapping):
        raise ShapeError(f"{_KEY} is {shown(table)}", hint='give {"structure": "TT(TT)TT"}')
    known = [field.name for field in fields(Subsampling)]
    if unknown := [name for name in table if name not in known]:
        raise ShapeError(f"{_KEY} has no {shown(unknown[0])}", hint=nearest(str(unknown[0]), known))
    if "structure" not in table:
        raise ShapeError(f"{_KEY} has no structure", hint='give "structure": "TT(TT)TT"')
    rest = {name: value for name, value in stated.items() if name not in (_BASE, _KEY)}
    return {**rest, "model_type": stated.get(_BASE, "llama")}, Subsampling(**table)

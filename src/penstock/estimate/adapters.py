"""Adapters of LoRA as an estimate is told of them: a rank, and targets behind it."""

from typing import Any

from penstock.arch.lora import LAYER_TARGETS, TARGETS, Lora
from penstock.errors import ShapeError, shown

DIGITS_AT_MOST = 9
_HINT = f"give a rank, as 16, or with targets 16:q_proj,v_proj of: {', '.join(TARGETS)}"


def read_lora(name: str, value: Any) -> Lora:
    """The adapters that a value stands for.

    >>> read_lora("lora", "8:q_proj,v_proj").targets
    ('q_proj', 'v_proj')
    """
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise ShapeError(f"{name} is {shown(value)}", hint=_HINT)
    size, colon, targets = text.partition(":")
    if not (size.isascii() and size.isdecimal() and len(size) <= DIGITS_AT_MOST):
        raise ShapeError(f"{name} is {shown(value)}", hint=_HINT)
    chosen = tuple(each.strip() for each in targets.split(",")) if colon else LAYER_TARGETS
    return Lora(int(size), targets=chosen)

"""A soft bound on logits: they become cap x tanh(logit / cap).

The way back multiplies by the slope, 1 - tanh(logit / cap)^2, which is kept beside the logits since
their gradient is written over them.
"""

import torch
from torch import Tensor


def cap_logits(logits: Tensor, cap: float | None) -> tuple[Tensor, Tensor | None]:
    """The logits bounded, and the slope of the bound in 32 bits at least; the logits are gone."""
    if cap is None:
        return logits, None
    bounded = logits.to(torch.promote_types(logits.dtype, torch.float32)).div_(cap).tanh_()
    slope = (bounded * bounded).neg_().add_(1)
    return bounded.mul_(cap).to(logits.dtype), slope


def cap_alone(logits: Tensor, cap: float | None) -> Tensor:
    """The logits bounded, where nothing comes back."""
    return cap_logits(logits, cap)[0]


def through_cap(d: Tensor, slope: Tensor | None) -> Tensor:
    """The gradient of the logits, of that of the bounded ones, which is gone."""
    return d if slope is None else d.mul_(slope)

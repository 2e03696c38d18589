"""A matrix whose columns were multiplied by a scale, back to the bit.

W' = round(W s) cannot be divided back exactly: round(W' / s) differs from W by a unit in the last
place here and there. So the difference of both as whole numbers is kept, which fits into 8 bits
where no scale is 0 and nothing was lost below the smallest number.
"""

import torch
from torch import Tensor

_WHOLE = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers with as many bytes as a number of the matrix."""
_NARROW = (torch.int8, torch.int16, torch.int32, torch.int64)


def lost_bits(matrix: Tensor, scaled: Tensor, scale: Tensor) -> Tensor:
    """What has to be kept of a matrix beside its scaled one, in as few bits as hold it."""
    whole = _WHOLE[matrix.element_size()]
    lost = matrix.contiguous().view(whole) - _divided(scaled, scale).view(whole)
    low, high = int(lost.min()), int(lost.max())
    fits = (
        each for each in _NARROW if torch.iinfo(each).min <= low and high <= torch.iinfo(each).max
    )
    return lost.to(next(fits))


def unfold(scaled: Tensor, scale: Tensor, lost: Tensor) -> Tensor:
    """The matrix that was multiplied."""
    whole = _WHOLE[scaled.element_size()]
    return (_divided(scaled, scale).view(whole) + lost.to(whole)).view(scaled.dtype)


def _divided(scaled: Tensor, scale: Tensor) -> Tensor:
    """As near as it gets; 0 where it is nothing."""
    wide = torch.promote_types(scaled.dtype, torch.float32)
    found = (scaled.to(wide) / scale.to(wide)).to(scaled.dtype)
    return torch.where(found.isfinite(), found, torch.zeros_like(found)).contiguous()

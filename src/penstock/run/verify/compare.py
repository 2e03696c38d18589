"""How far two sets of gradients lie apart, and which parameter is the worst.

A single number for a whole model would hide a wrong bias behind large matrices, so every parameter
is measured on its own: the norm of the difference over the norm of what it should be. A parameter
whose gradient is practically zero is measured against a millionth of the whole gradient instead.
"""

from collections.abc import Sequence
from math import inf, isfinite, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.run.verify.oracle import Answer, Named

FLOOR = 1e-6
"""Share of the global norm below which a gradient counts as zero."""
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
"""Largest error, by the type that was computed in."""


class Difference(NamedTuple):
    """How far an answer lies from the right one; infinite where it is missing or no number."""

    loss: float
    gradient: float
    parameter: str
    """The parameter with the largest error."""
    reason: str
    """What about it differs, in words."""

    def within(self, tolerance: float) -> bool:
        return self.loss <= tolerance and self.gradient <= tolerance


def difference(loss: float, held: Sequence[Named], right: Answer) -> Difference:
    """The largest error of a loss and of the gradients that the processes hold, and where it is.

    A parameter may be held by several processes, as replicas do; each of them has to be right.
    """
    found = [worst_error(gradients, right.gradients) for gradients in held]
    missing = right.gradients.keys() - {name for gradients in held for name in gradients}
    found += [(inf, name, "no process holds its gradient") for name in sorted(missing)[:1]]
    error, name, reason = max(found, key=lambda entry: entry[0])
    return Difference(_ratio(abs(loss - right.loss), abs(right.loss)), error, name, reason)


def worst_error(found: Named, right: Named) -> tuple[float, str, str]:
    """The largest error of some parameters, whose it is, and what differs."""
    floor = FLOOR * sqrt(sum(float(b.norm()) ** 2 for b in right.values()))
    errors = {name: gradient_error(a, right.get(name), floor) for name, a in found.items()}
    if not errors:
        return 0.0, "", ""
    worst = max(errors, key=lambda name: errors[name])
    return errors[worst], worst, _reason(found[worst], right.get(worst))


def gradient_error(a: Tensor, b: Tensor | None, floor: float) -> float:
    """||a - b|| / max(||b||, floor)"""
    if b is None or a.shape != b.shape:
        return inf
    wide = b.to(torch.float64)
    return _ratio(float((a.to(torch.float64) - wide).norm()), max(float(wide.norm()), floor))


def _ratio(distance: float, size: float) -> float:
    """A relative error; not a number counts as infinite, for it would win no comparison."""
    if not size:
        return inf if distance else 0.0
    return distance / size if isfinite(distance / size) else inf


def _reason(a: Tensor, b: Tensor | None) -> str:
    if b is None:
        return "there is no such parameter"
    if a.shape != b.shape:
        return f"its size is {tuple(a.shape)}, not {tuple(b.shape)}"
    if not torch.isfinite(a).all():
        return f"{int((~torch.isfinite(a)).sum())} of {a.numel()} elements are no numbers"
    return f"its norm is {float(a.norm()):.6g}, not {float(b.norm()):.6g}"


def unequal_bits(held: Sequence[Named], right: Named) -> list[str]:
    """Parameters whose gradients differ in any bit, or which one side alone has."""
    names = {name for gradients in held for name in gradients}
    wrong = {
        name
        for gradients in held
        for name, a in gradients.items()
        if name in right and not _same_bits(a, right[name])
    }
    return sorted(wrong | (names ^ right.keys()))


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Unlike `==`, this tells 0 from -0."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))

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

from penstock.verify.oracle import Answer, Named


class HeldGradient(NamedTuple):
    """A gradient that a process has arrived at, or a part of it."""

    name: str
    gradient: Tensor
    part: tuple[slice, ...] = ()
    """Which part of the whole it is; nothing: all of it."""

    def of(self, whole: Tensor) -> Tensor:
        """The same part of another tensor."""
        return whole[self.part]


Held = Sequence[HeldGradient]
"""Gradients of all processes; a name may stand several times."""

FLOOR = 1e-6
"""Share of the global norm below which a gradient counts as zero."""


class Tolerance(NamedTuple):
    """The largest relative errors that count as rounding."""

    loss: float
    gradient: float
    """Of any one parameter."""


TOLERANCE = {
    "cpu": {"float64": Tolerance(1e-10, 1e-10), "float32": Tolerance(1e-5, 1e-5)},
    # At the sizes for a GPU, float32 is off by up to 5e-6 on a CPU (norms of heads) and 2e-6 on an
    # H200, bfloat16 by up to 3.4e-2 (keys and queries, whose softmax cancels most of what comes
    # in): ten roundings of 2^-9 in each of eight layers. A loss is a mean over thousands of labels,
    # whose roundings cancel: 3e-9 and 5e-5. The limits are two to several times that, and tests
    # show that mistakes lie beyond them.
    "cuda": {"float32": Tolerance(1e-6, 5e-5), "bfloat16": Tolerance(1e-4, 8e-2)},
}
"""How far a run may be from the oracle: by the sizes, and by the type that was computed in."""
CHOICE_TOLERANCE = {"bfloat16": Tolerance(1e-3, 0.7)}
"""The same for models that choose by scores, experts for a token or tokens to keep. Of scores that
are nearly equal, rounded ones choose others than the oracle does, and a few tokens are much of what
an expert has: gradients were off by 0.31 and 0.42 on an H200, losses by 2.5e-4 there and 1.9e-4 on
a CPU. A gradient that is lost or turned round is beyond it; all else is left to the comparison with
one process, which chooses alike."""
FROM_ONE_PROCESS = {"float32": Tolerance(1e-6, 1e-5), "bfloat16": Tolerance(5e-5, 4e-2)}
"""How far a run may be from one process with the same slices and kernels, where bits are not
claimed. Both round alike as long as kernels give the same bits for the same input; one that does
not lets all later roundings differ, and then two runs are as far apart as both are from the oracle:
by the square root of two times those errors. This comparison sees what the pipeline does wrong, and
the oracle what kernels do wrong."""


class Difference(NamedTuple):
    """How far an answer lies from the right one; infinite where it is missing or no number."""

    loss: float
    gradient: float
    parameter: str
    """The parameter with the largest error."""
    reason: str
    """What about it differs, in words."""

    def within(self, tolerance: Tolerance) -> bool:
        return not self.beyond(tolerance)

    def beyond(self, tolerance: Tolerance, other: str = "") -> list[str]:
        """What lies outside, in words: the parameter first.

        `other` says what was compared with, where that is not the oracle.
        """
        parts = []
        if self.gradient > tolerance.gradient:
            parts.append(f"{self.parameter} differs by {self.gradient:.2g}{other}: {self.reason}")
        if self.loss > tolerance.loss:
            parts.append(f"the loss differs by {self.loss:.2g}{other}")
        return parts


def difference(loss: float, held: Held, right: Answer) -> Difference:
    """The largest error of a loss and of the gradients that the processes hold, and where it is.

    A parameter may be held by several processes, as replicas do; each of them has to be right.
    """
    floor = FLOOR * sqrt(sum(float(b.norm()) ** 2 for b in right.gradients.values()))
    found = [
        (gradient_error(each.gradient, b, floor), each.name, _reason(each.gradient, b))
        for each in held
        for b in [_wanted(each, right.gradients)]
    ]
    found += [(inf, name, reason) for name, reason in _missing(held, right.gradients)]
    error, name, reason = max(found, key=lambda entry: entry[0])
    return Difference(_ratio(abs(loss - right.loss), abs(right.loss)), error, name, reason)


def _wanted(held: HeldGradient, right: Named) -> Tensor | None:
    """What a process should have arrived at."""
    return held.of(right[held.name]) if held.name in right else None


def _missing(held: Held, right: Named) -> list[tuple[str, str]]:
    """Parameters of which no process has the gradient, or not all of it, and what is missing."""
    covered = {name: torch.zeros(b.shape, dtype=torch.bool) for name, b in right.items()}
    for each in held:
        if each.name in covered:
            each.of(covered[each.name]).fill_(True)
    left = {name: int((~there).sum()) for name, there in covered.items() if not there.all()}
    return [
        (name, "no process holds its gradient")
        if count == right[name].numel()
        else (name, f"no process holds {count} of the {right[name].numel()} elements")
        for name, count in sorted(left.items())
    ]


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
        return f"{int((~torch.isfinite(a)).sum())} of {a.numel()} elements are not numbers"
    return f"its norm is {float(a.norm()):.6g}, not {float(b.norm()):.6g}"


def unequal_bits(held: Held, right: Named) -> list[str]:
    """Parameters whose gradients differ in any bit, or which one side alone has."""
    wrong = {
        each.name
        for each in held
        for b in [_wanted(each, right)]
        if b is None or not _same_bits(each.gradient, b)
    }
    return sorted(wrong | {name for name, _ in _missing(held, right)})


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Unlike `==`, this tells 0 from -0."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))

"""How a model's rotary frequencies were changed to reach positions it was not first trained on.

Rotary positions turn each pair of a head's elements by position x frequency. A model whose context
was extended has other frequencies than the plain ones, and a loader that overlooks it computes
another model. A variant is data here; model/layers/rope.py turns it into frequencies.

    linear     every frequency divided by the factor
    dynamic    plain up to the model's positions; beyond, they depend on each sequence's length
    llama3     long wavelengths divided by the factor, short ones kept, a ramp between
    yarn       the same with a ramp over elements, and queries and keys scaled (arXiv:2309.00071)
    longrope   each frequency divided by a number of its own: one list up to the original positions,
               another one beyond, and queries and keys scaled (arXiv:2402.13753)
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import log, sqrt
from typing import Any

from penstock.arch.limits import refuse_number
from penstock.errors import ShapeError, nearest, shown

NUMBERS: Mapping[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "original_positions", "low_factor", "high_factor"),
    "yarn": (
        *("factor", "original_positions", "beta_fast", "beta_slow"),
        *("attention_factor", "truncate"),
    ),
    "longrope": (
        *("factor", "original_positions", "attention_factor", "short_factors", "long_factors"),
    ),
}
"""What each variant is made of; a number that is foreign to it is refused, not left unused."""


@dataclass(frozen=True)
class RopeScaling:
    """One variant with its numbers; those it does not have stay at their defaults."""

    kind: str
    """linear, dynamic, llama3, yarn or longrope."""
    factor: float
    """How many times longer the context became."""
    original_positions: int = 0
    """Positions of the model before its context was extended; 0 where the variant has none."""
    low_factor: float = 1.0
    """llama3: wavelengths above original_positions / low_factor are divided by the factor."""
    high_factor: float = 4.0
    """llama3: wavelengths below original_positions / high_factor are kept."""
    beta_fast: float = 32.0
    """yarn: rotations within the original positions from which a frequency is kept."""
    beta_slow: float = 1.0
    """yarn: rotations within the original positions up to which it is divided by the factor."""
    attention_factor: float | None = None
    """yarn, longrope: what queries and keys are multiplied by; None: as the papers derive it."""
    truncate: bool = True
    """yarn: whether the ends of the ramp are rounded outwards to whole elements."""
    short_factors: tuple[float, ...] = ()
    """longrope: what each frequency is divided by in runs up to original_positions."""
    long_factors: tuple[float, ...] = ()
    """longrope: the same in runs of longer sequences."""

    def __post_init__(self) -> None:
        if self.kind not in NUMBERS:
            known = list(NUMBERS)
            raise ShapeError(
                f"no rope scaling is called {shown(self.kind)}", hint=nearest(self.kind, known)
            )
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if field.name in NUMBERS[self.kind]:
                _refuse_value(f"rope scaling {self.kind}: {field.name}", field.default, value)
            elif value != field.default:
                raise ShapeError(
                    f"rope scaling {self.kind} has no {field.name}, but it is {value!r}",
                    hint=f"it is made of {', '.join(NUMBERS[self.kind])}",
                )
        _refuse_order(self)

    @property
    def scale(self) -> float:
        """What queries and keys are multiplied by: 0.1 ln(factor) + 1 for yarn, for longrope
        sqrt(1 + ln(factor) / ln(original_positions)), 1 for others."""
        if self.kind not in ("yarn", "longrope"):
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        if self.kind == "yarn":
            return yarn_scale(self.factor, 1.0)
        spread = log(max(self.factor, 1.0)) / log(max(self.original_positions, 2))
        return sqrt(1 + spread)

    def factors(self, length: int) -> tuple[float, ...]:
        """What each frequency is divided by where the longest sequence has so many tokens."""
        return self.long_factors if length > self.original_positions else self.short_factors

    def refuse_head(self, size: int) -> None:
        """Refuse heads that have another number of frequencies than the lists of longrope."""
        for name in ("short_factors", "long_factors"):
            found = len(getattr(self, name))
            if self.kind == "longrope" and 2 * found != size:
                raise ShapeError(
                    f"rope scaling longrope: {name} has {found} numbers, but heads of {size} "
                    f"elements have {size // 2} frequencies",
                    hint=f"give {size // 2} numbers",
                )


def yarn_scale(factor: float, weight: float) -> float:
    """The paper's scale of queries and keys, with a weight that some models put on it."""
    return 0.1 * weight * log(factor) + 1.0 if factor > 1 else 1.0


def _refuse_value(name: str, default: object, value: Any) -> None:
    if isinstance(default, tuple):
        if not isinstance(value, tuple):
            raise ShapeError(f"{name} is {shown(value)}", hint="give a list of numbers")
        for each in value:
            refuse_number(name, each)
    elif isinstance(default, bool):
        if not isinstance(value, bool):
            raise ShapeError(f"{name} is {value}", hint="give true or false")
    elif value is not None or default is not None:
        refuse_number(name, value)


def _refuse_order(scaling: RopeScaling) -> None:
    """The ends of a ramp the wrong way round would turn it into something else."""
    for low, high in (("low_factor", "high_factor"), ("beta_slow", "beta_fast")):
        if getattr(scaling, low) >= getattr(scaling, high):
            raise ShapeError(
                f"rope scaling {scaling.kind}: {low} {getattr(scaling, low)} is not below {high} "
                f"{getattr(scaling, high)}",
                hint=f"give a {low} that is below {high}",
            )

"""A pair of brackets around layers that only some tokens go through: a scorer where it opens, a
bypass where it closes (arch/subsampling.py).

Both have one number for each feature, whole on every rank: what they compute must be the same
wherever tokens are held.
"""

from dataclasses import dataclass

from penstock.arch.layers.parameter import InitialValue, Parameter
from penstock.arch.layers.record import LayerRecord, wide_bytes
from penstock.arch.subsampling import SCORER_RATE


@dataclass(frozen=True)
class Scorer(LayerRecord):
    """Gives each token a score. Of each token in front of the bracket it keeps h elements and a
    score; its h products are not counted, as those of norms are not."""

    number: int
    """Of the pair."""
    hidden: int
    element_bytes: int

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        name, start = scorer_name(self.number), InitialValue.UNIFORM
        return (Parameter(name, (self.hidden,), start, rate=SCORER_RATE),)

    @property
    def saved_bytes(self) -> int:
        return self.hidden * self.element_bytes + wide_bytes(self.element_bytes)


@dataclass(frozen=True)
class Bypass(LayerRecord):
    """Mixes what came back with what was there. Of each kept token it keeps what it has changed by,
    h elements, its weight and its place."""

    number: int
    hidden: int
    element_bytes: int

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(bypass_name(self.number), (self.hidden,), InitialValue.HALVES),)

    @property
    def saved_bytes(self) -> int:
        return self.hidden * self.element_bytes + wide_bytes(self.element_bytes) + 8


def scorer_name(number: int) -> str:
    """What the scorer of a pair is called.

    >>> scorer_name(0)
    'model.brackets.0.scorer'
    """
    return f"model.brackets.{number}.scorer"


def bypass_name(number: int) -> str:
    """What the bypass of a pair is called."""
    return f"model.brackets.{number}.bypass"

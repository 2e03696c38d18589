"""Sequences of unequal lengths, cut into slices of one size.

Lengths are counted in slices: 5/2 is a sequence of two whole slices and a half one, 1 a slice that
one or several sequences fill, 1/2 one that they fill by half. A slice of whole length is the unit
of time and memory.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import ceil

from penstock.core.numbers import read_number
from penstock.core.shape import Shape
from penstock.schedules.generators.streams import PlainOp, Unit, backward_units, forward_units

RaggedLengths = tuple[Fraction, ...]


@lru_cache(maxsize=64)
def read_lengths(text: str) -> RaggedLengths:
    """Lengths written as 1,1/2,3.

    >>> read_lengths("1,0.5,3") == (1, Fraction(1, 2), 3)
    True
    """
    lengths = tuple(map(read_number, text.split(",")))
    if min(lengths) <= 0:
        raise ValueError("a sequence has no length")
    return lengths


def write_lengths(lengths: Sequence[Fraction]) -> str:
    """The same lengths as text."""
    return ",".join(map(str, lengths))


def ragged_shape(devices: int, lengths: RaggedLengths) -> Shape:
    """One stage per device; the last slice of a sequence is what the whole ones leave."""
    shape = Shape(devices, devices, tuple(map(ceil, lengths)))
    return replace(shape, slice_share=tuple(map(_shares, lengths)))


def _shares(length: Fraction) -> tuple[Fraction, ...]:
    whole = ceil(length) - 1
    return (*[Fraction(1)] * whole, length - whole)


def merge_groups(shape: Shape, kept: int, device: int, forwards: Sequence[int]) -> list[PlainOp]:
    """One device's lane: backward j runs as soon as `forwards[j]` forwards have run.

    All but the last `kept` slices of a sequence are run again right before their backward.
    """
    stream, lane, done = forward_units(shape), list[PlainOp](), 0
    for (mb, s), due in zip(backward_units(shape), forwards):
        lane += [_forward(shape, kept, device, unit) for unit in stream[done:due]]
        done = max(done, due)
        again = s < shape.slices[mb] - kept
        lane += [(kind, device, mb, s) for kind in ("RB" if again else "B")]
    return lane


def _forward(shape: Shape, kept: int, device: int, unit: Unit) -> PlainOp:
    mb, s = unit
    return ("N" if s < shape.slices[mb] - kept else "F", device, mb, s)

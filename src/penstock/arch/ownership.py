"""Which elements of a stage's flat buffers a rank owns, where several ranks hold the same stage.

Ranks that hold the same weights can share the work of the optimizer: each updates a range of the
flat buffer. Ranges are as even as can be and ask nothing of where parameters begin and end.

    parameters   a a a a a b b b c c c c        12 elements, 3 ranks
    owner        0 0 0 0 1 1 1 1 2 2 2 2

A parameter that two stages share lies elsewhere in the other one's buffer. It is dealt apart from
the others, so that a rank owns the same elements of it in both:

    first stage  e e e e e|a a a a a a a        last stage   b b b b b b|e e e e e
    owner        0 0 1 1 1|0 0 0 1 1 1 1                     0 0 0 1 1 1|0 0 1 1 1
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from penstock.arch.layers.parameter import TensorShape
from penstock.arch.parameter_layout import ParameterLayout, ParameterPart

MESSAGE = 1 << 20
"""Elements that a rank sends another at a time, where gradients are added up by messages: what has
arrived from all others is the only memory that this takes."""


class OwnedPart(NamedTuple):
    """What a rank owns of one parameter: elements [offset, stop) of the stage's flat buffer."""

    part: ParameterPart
    offset: int
    stop: int
    kept: int
    """Its first element in a buffer that has only what the rank owns."""

    @property
    def shape(self) -> TensorShape:
        """Of the whole parameter."""
        return self.part.shape

    @property
    def elements(self) -> int:
        return self.stop - self.offset

    @property
    def is_all(self) -> bool:
        """Whether it is all that the stage has of the parameter."""
        return self.elements == self.part.elements

    @property
    def inside(self) -> slice:
        """Which elements of the parameter it has, these one behind the other."""
        return slice(self.offset - self.part.offset, self.stop - self.part.offset)


class OwnedRun(NamedTuple):
    """A stretch of the flat buffer that is dealt to all ranks, and what this one owns of it."""

    cuts: tuple[int, ...]
    """Where the range of each rank begins, and the end of the last."""
    own: range
    kept: range
    """The same elements in a buffer that has only what the rank owns."""


@dataclass(frozen=True)
class Ownership:
    """What rank `index` of `of` owns; one rank alone owns everything."""

    layout: ParameterLayout
    index: int = 0
    of: int = 1
    apart: Collection[str] = ()
    """Parameters that are dealt by themselves."""

    @cached_property
    def runs(self) -> tuple[OwnedRun, ...]:
        """What is dealt together, in the order of the buffer."""
        found: list[OwnedRun] = []
        for start, stop in pairwise(self.borders):
            cuts = tuple(_cut(start, stop, at, self.of) for at in range(self.of + 1))
            own, kept = range(*cuts[self.index : self.index + 2]), sum(len(r.own) for r in found)
            found.append(OwnedRun(cuts, own, range(kept, kept + len(own))))
        return tuple(found)

    @cached_property
    def borders(self) -> tuple[int, ...]:
        """Where what is dealt together begins, and the end of the buffer."""
        parts = self.layout.distinct
        ends = [end for n in self.apart if n in parts for end in (parts[n].offset, parts[n].stop)]
        return tuple(sorted({0, *ends, self.layout.stored}))

    @cached_property
    def frozen(self) -> "Ownership | None":
        """What it owns of the parameters that are not trained, where ranks have ranges of them."""
        apart = self.layout.frozen
        return Ownership(apart, self.index, self.of) if apart else None

    @cached_property
    def elements(self) -> int:
        """Elements that this rank owns."""
        return owned_elements(self.borders, self.index, self.of)

    @cached_property
    def parts(self) -> dict[str, OwnedPart]:
        """What the rank owns of every parameter that has values of its own: perhaps nothing."""
        return {name: self._owned(part) for name, part in self.layout.distinct.items()}

    def _owned(self, part: ParameterPart) -> OwnedPart:
        run = next(run for run in self.runs if run.cuts[0] <= part.offset < run.cuts[-1])
        offset, stop = max(part.offset, run.own.start), min(part.stop, run.own.stop)
        if offset >= stop:
            return OwnedPart(part, part.offset, part.offset, run.kept.start)
        return OwnedPart(part, offset, stop, run.kept.start + offset - run.own.start)

    def parts_of(self, run: OwnedRun) -> dict[str, OwnedPart]:
        """The same of a run alone, with offsets that count from its first owned element."""
        first, inside = run.own.start, range(run.cuts[0], run.cuts[-1])
        return {
            name: owned._replace(offset=owned.offset - first, stop=owned.stop - first)
            for name, owned in self.parts.items()
            if owned.elements and owned.part.offset in inside
        }

    def range_in(self, elements: int, run: OwnedRun) -> slice:
        """Where the rank's elements of a run lie in a flat buffer of that many elements: one of
        the whole stage, or one that has only what the rank owns."""
        where = run.kept if elements == self.elements else run.own
        return slice(where.start, where.stop)

    def slice_in(self, elements: int, owned: OwnedPart) -> slice:
        """The same for what it owns of a parameter."""
        start = owned.kept if elements == self.elements else owned.offset
        return slice(start, start + owned.elements)


def _cut(start: int, stop: int, at: int, of: int) -> int:
    """Where the range of rank `at` begins, of what is dealt to `of` ranks together."""
    return start + (stop - start) * at // of


def owned_elements(borders: Sequence[int], index: int, of: int) -> int:
    """What rank `index` of `of` owns of a buffer; what lies between two borders is dealt together.

    >>> [owned_elements((0, 5, 12), rank, 2) for rank in range(2)]
    [5, 7]
    """
    runs = pairwise(borders)
    return sum(_cut(*run, index + 1, of) - _cut(*run, index, of) for run in runs)


def most_owned(elements: int, of: int) -> int:
    """The most that one of so many ranks owns of as many elements.

    >>> [most_owned(elements, 3) for elements in (12, 13, 2)]
    [4, 5, 1]
    """
    return -(-elements // of)


def message_room(elements: int, of: int) -> int:
    """Elements of memory that adding up takes beside the gradient itself."""
    return (of - 1) * min(MESSAGE, most_owned(elements, of))

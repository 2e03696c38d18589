"""Ranks that share the work of a stage, as its layers see them.

Layers know neither processes nor networks. They are given groups: how many ranks there are, which
of them this one is, and what can be done together. Everything that talks to other ranks is started
and returns something to wait for, so that whoever drives the work decides what happens meanwhile:
a stage's work is a generator that yields what is pending, and goes on when it is there.
"""

from collections.abc import Generator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from torch import Tensor

Result = TypeVar("Result")

TensorSize = tuple[int, ...]


class Pending(Protocol):
    """Something under way; `wait` returns when its result can be used."""

    def wait(self) -> Any: ...


Work = Generator[Pending, None, Result]
"""Work that waits for other ranks, and its result."""

WorkOrResult: TypeAlias = Work[Result] | Result
"""What was asked for: still to be worked for, or there already, where a rank is alone."""


class RankGroup(Protocol):
    """Some ranks, numbered from 0; all of them call the same methods in the same order.

    What is given must not be changed, and what is returned not be read, before it is waited for.
    """

    @property
    def size(self) -> int: ...

    @property
    def index(self) -> int:
        """The number of this rank."""
        ...

    def add_up(self, tensor: Tensor) -> Pending:
        """The sum over all ranks, in place (all-reduce)."""
        ...

    def take_largest(self, tensor: Tensor) -> Pending:
        """The largest of all ranks, element by element, in place."""
        ...

    def gather(self, part: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Pending]:
        """The parts of all ranks, one behind the other along the first axis (all-gather); the part
        of rank i has sizes[i] rows."""
        ...

    def scatter_sum(self, whole: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Pending]:
        """This rank's part of the sum over all ranks (reduce-scatter); parts lie one behind the
        other along the first axis, that of rank i has sizes[i] rows."""
        ...

    def exchange(
        self, parts: Sequence[Tensor], sizes: Sequence[TensorSize]
    ) -> tuple[list[Tensor], Pending]:
        """Send parts[i] to rank i, and receive what it has for this one, of shape sizes[i]
        (all-to-all)."""
        ...

    def pass_on(
        self, tensors: Sequence[Tensor], sizes: Sequence[TensorSize]
    ) -> tuple[list[Tensor], Pending]:
        """Send tensors to the next rank, the last one to the first, and receive those of the rank
        before, of shapes `sizes`."""
        ...

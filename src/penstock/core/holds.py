"""What ops wait for because a schedule says so, as columns.

A schedule with copies and gathers holds back as many ops as it has. An object for each of them is
made only where somebody looks at them one by one; proofs and simulations do not.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from penstock.core.schedule import After
from penstock.core.table import OpColumns


class Holds(Sequence[After]):
    """Ops, and for each of them another one that has to end before; no two are the same."""

    def __init__(self, ops: OpColumns, earlier: OpColumns) -> None:
        self.ops = ops
        self.earlier = earlier

    def followed_by(self, more: "Holds") -> "Holds":
        """These and others, which must be different ones."""
        return Holds(self.ops.followed_by(more.ops), self.earlier.followed_by(more.earlier))

    @cached_property
    def _each(self) -> tuple[After, ...]:
        made = partial(tuple.__new__, After)  # without a call of Python
        return tuple(map(made, zip(self.ops.ops(), self.earlier.ops())))

    def __len__(self) -> int:
        return len(self.ops.kind)

    def __iter__(self) -> Iterator[After]:
        return iter(self._each)

    def __getitem__(self, at: Any) -> Any:
        return self._each[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._each == tuple(other)

    def __hash__(self) -> int:
        return hash(self._each)

    def __repr__(self) -> str:
        return repr(self._each)


def held_too(after: Sequence[After], more: Holds) -> Sequence[After]:
    """What a schedule says already, each once, and more."""
    if isinstance(after, Holds):
        return after.followed_by(more)
    return (*dict.fromkeys(after), *more) if after else more

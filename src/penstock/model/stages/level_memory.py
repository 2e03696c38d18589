"""The memory of a sequence where layers see different tokens: one for the layers of each bracket.

Kept tokens of a slice attend to those of the slices before it in the same bracket. Documents begin
there where the first of their kept tokens stands.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from torch import Tensor

from penstock.model.attention.memory import KeyValues

Documents = tuple[tuple[int, ...], ...]


class LevelMemory:
    """Keys and values of the layers of a stage, by bracket."""

    def __init__(self, regions: Mapping[int, KeyValues]) -> None:
        self.regions = regions
        self.kept: dict[int, dict[int, list[list[int]]]] = {}
        """Positions of kept tokens by bracket and slice, for each row, where these matter."""
        self.loads: Tensor | None = None

    def count(self, region: int, slice: int) -> int:
        """Tokens that slices before this one have kept, where their number was not fixed."""
        own = self.kept.get(region, {})
        return sum(len(own[each][0]) for each in range(slice))

    def note(self, region: int, slice: int, positions: Tensor) -> list[list[int]]:
        """Note what a slice has kept; returns the positions that the sequence has so far."""
        own = self.kept.setdefault(region, {})
        own[slice] = positions.tolist()
        rows = range(len(own[slice]))
        return [[at for each in range(slice + 1) for at in own[each][row]] for row in rows]

    def open_gradients(self) -> "LevelMemory":
        """Begin the backward of the microbatch."""
        for each in self.regions.values():
            each.open_gradients()
        return self

    def close_gradients(self) -> None:
        """End the backward of the microbatch."""
        for each in self.regions.values():
            each.close_gradients()


FAR = 1 << 40
"""Behind every token."""


def kept_documents(documents: Documents, positions: Sequence[Sequence[int]]) -> Documents:
    """Where documents begin among kept tokens; one of which nothing is kept is not there.

    Rows that have the same documents so far may not have the same ones in later slices, whose
    gradients reach back differently far. So each of several rows has a last start of its own,
    behind all tokens, and none is computed together with another.

    >>> kept_documents(((0, 5, 6, 9),), [[1, 2, 7, 8]])
    ((0, 2),)
    """
    found = []
    for row, (starts, at) in enumerate(zip(documents, positions)):
        begun = dict.fromkeys(bisect_left(at, start) for start in starts)
        own = tuple(each for each in begun if each < len(at)) or (0,)
        found.append(own if len(documents) == 1 else (*own, FAR + row))
    return tuple(found)

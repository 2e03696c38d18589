"""What modules take and give: one tensor, or tensors in tuples, lists and dictionaries.

Between stages exactly one tensor moves for each microbatch, so several of them travel as one, byte
behind byte. A form says how to take them apart again. One tensor alone is its own form: nothing is
copied.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

LEAF_ALIGNMENT = 16
"""Bytes at whose multiples each tensor begins, so that it can be looked at as what it is."""


def leaves(value: Any) -> Iterator[Any]:
    """What is inside of a value, in one order; None is nothing.

    >>> [*leaves({"b": 1, "a": (2, None, [3])})]
    [1, 2, 3]
    """
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        if value is not None:
            yield value
        return
    for each in value:
        yield from leaves(each)


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """The same value with every leaf replaced.

    >>> map_leaves(lambda n: n + 1, {"a": (1, None), "b": [2]})
    {'a': (2, None), 'b': [3]}
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {key: map_leaves(function, each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_leaves(function, each) for each in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_leaves(function, each) for each in value)
    return function(value)


def differentiable(value: Any) -> list[Tensor]:
    """The tensors of a value that gradients can reach."""
    return [leaf for leaf in leaves(value) if leaf.is_floating_point()]


def words_of(value: Any) -> str:
    """Sizes and types, as errors and ranks state them.

    >>> words_of({"mask": torch.zeros(2, 3, dtype=torch.bool), "x": None})
    "{'mask': [2, 3] of bool, 'x': None}"
    """
    if isinstance(value, Mapping):
        inner = (f"{key!r}: {words_of(each)}" for key, each in value.items())
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(words_of, value))})"
    if isinstance(value, Tensor):
        return f"{[*value.shape]} of {str(value.dtype).removeprefix('torch.')}"
    return "None" if value is None else type(value).__name__


@dataclass(frozen=True)
class Form:
    """How a value looks: `patterns` has one element that looks like the whole for each leaf."""

    patterns: Any

    @classmethod
    def of(cls, value: Any) -> "Form":
        return cls(map_leaves(lambda leaf: _pattern(leaf, leaf.device), value))

    def on(self, device: torch.device) -> "Form":
        """The same form there."""
        return Form(map_leaves(lambda leaf: _pattern(leaf, device), self.patterns))

    @property
    def gradient(self) -> "Form":
        """That of the gradients: of what gradients can reach."""
        if isinstance(self.patterns, Tensor):
            return self
        return Form(tuple(differentiable(self.patterns)))

    @cached_property
    def moved(self) -> Tensor:
        """One element that looks like the tensor that moves between stages."""
        if isinstance(self.patterns, Tensor):
            return self.patterns
        like: Tensor = next(leaves(self.patterns))
        return like.new_empty((), dtype=torch.uint8).expand(self._starts[-1])

    @cached_property
    def _starts(self) -> list[int]:
        """Where each leaf begins in the bytes that move, and where they end."""
        found = [0]
        for leaf in leaves(self.patterns):
            found.append(found[-1] + _aligned(leaf.numel() * leaf.element_size()))
        return found

    def zeros(self) -> Any:
        """A value of this form."""
        return map_leaves(torch.zeros_like, self.patterns)

    def fits(self, value: Any) -> bool:
        """Whether a value has this form, by which memory for it was made."""
        if isinstance(value, Tensor) and isinstance(self.patterns, Tensor):
            return value.shape == self.patterns.shape and value.dtype == self.patterns.dtype
        return words_of(value) == words_of(self.patterns)

    def joined(self, value: Any) -> Tensor:
        """A value as one tensor in whole memory: a transfer takes nothing else."""
        if isinstance(value, Tensor):
            return value.contiguous()
        whole = torch.empty_like(self.moved)
        with torch.no_grad():
            for leaf, part in zip(leaves(value), self._parts(whole)):
                part.copy_(leaf)
        return whole

    def parted(self, whole: Tensor) -> Any:
        """The value that was joined; its tensors look at the same memory."""
        if isinstance(self.patterns, Tensor):
            return whole
        parts = self._parts(whole)
        return map_leaves(lambda _: next(parts), self.patterns)

    def _parts(self, whole: Tensor) -> Iterator[Tensor]:
        for start, leaf in zip(self._starts, leaves(self.patterns)):
            size = leaf.numel() * leaf.element_size()
            yield whole[start : start + size].view(leaf.dtype).view(leaf.shape)


ONE_TENSOR = Form(torch.empty(()))
"""The form of one tensor, whatever its size."""


def _aligned(size: int) -> int:
    return -(-size // LEAF_ALIGNMENT) * LEAF_ALIGNMENT


def _pattern(leaf: Tensor, device: torch.device) -> Tensor:
    return torch.empty((), dtype=leaf.dtype, device=device).expand(leaf.shape)


def first_axes(value: Any) -> list[int]:
    """How long the first axis of each tensor is; 0 of one that has no axis."""
    return [int(leaf.shape[0]) if leaf.dim() else 0 for leaf in leaves(value)]


def cut(value: Any, parts: int) -> list[Any]:
    """A value cut along the first axis of all its tensors into so many values."""
    pieces = [leaf.chunk(parts) for leaf in leaves(value)]
    found = []
    for number in range(parts):
        own = iter([each[number] for each in pieces])
        found.append(map_leaves(lambda _: next(own), value))  # noqa: B023 - used up before the next
    return found

"""A value out of a file, and the place it was written at.

A complaint about a file is only useful with a line and a column, and the code that knows what a
value should be does not know the syntax it came in. So each format turns its text into a tree of
plain values, plus a function from a path in that tree to a place in the text; a node is one value
on its path, and every refusal goes through `fail`.
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from penstock.core.ops import Op, parse_op
from penstock.errors import FormatError, nearest

NodePath = tuple[str | int, ...]
Where = Callable[[NodePath], tuple[int, int]]
"""Line and column, from 1, of what stands at a path of the tree."""

COUNT_BELOW = 10**9
"""Devices, stages and microbatches are below this, as the numbers in an op are."""

_FRACTION = re.compile(r"([0-9]{1,300})(?:/([0-9]{1,300}))?", re.ASCII)
_NAME_LENGTH = 300


class Node(NamedTuple):
    """One value of the tree; its methods read it as something, or fail with its place."""

    value: Any
    path: NodePath
    where: Where

    def fail(self, message: str, hint: str) -> FormatError:
        line, column = self.where(self.path)
        return FormatError(message, line=line, column=column, hint=hint)

    def child(self, step: str | int, value: Any) -> "Node":
        return Node(value, (*self.path, step), self.where)

    def members(self, known: Sequence[str], needed: Sequence[str]) -> dict[str, "Node"]:
        """The members of an object, none unknown, none repeated, none of the needed ones absent."""
        if not isinstance(self.value, dict):
            raise self.fail(f"{_short(self.value)} is not an object", "write {...}")
        for key in self.value:
            if key not in known:
                child = self.child(key, None)
                raise child.fail(f"the key {_short(key)} is not known", nearest(key[:40], known))
        repeated = getattr(self.value, "repeated", None)
        if repeated is not None:
            raise self.child(repeated, None).fail(
                f"the key {_short(repeated)} is given twice", "keep one of them"
            )
        for key in needed:
            if key not in self.value:
                raise self.fail(f"the key {key!r} is missing", f"needed are: {', '.join(needed)}")
        return {key: self.child(key, value) for key, value in self.value.items()}

    def items(self, wanted: int = -1) -> list["Node"]:
        """The items of a list; `wanted` says how many there must be, where that is fixed."""
        values = self._list()
        if wanted >= 0 and len(values) != wanted:
            raise self.fail(f"{len(values)} values instead of {wanted}", f"give {wanted}")
        return [self.child(number, value) for number, value in enumerate(values)]

    def whole(self, least: int = 0, below: int = COUNT_BELOW) -> int:
        """A whole number; `True` is none."""
        if type(self.value) is not int or not least <= self.value < below:
            raise self.fail(
                f"{_short(self.value)} is not an integer from {least} to {below - 1:,}",
                "write decimal digits only, without quotes",
            )
        return self.value

    def wholes(self, least: int) -> list[int]:
        """A whole list of numbers; looked at one by one only when something is wrong."""
        values = self._list()
        numbers = set(map(type, values)) == {int}
        if numbers and least <= min(values) and max(values) < COUNT_BELOW:
            return values
        return [item.whole(least) for item in self.items()]

    def fraction(self) -> Fraction:
        """An exact share such as `1/4`; text, because JSON's numbers are not exact."""
        match = _FRACTION.fullmatch(self.value) if isinstance(self.value, str) else None
        if match is None or (match[2] and not int(match[2])):
            raise self.fail(f"{_short(self.value)} is not a fraction", "write it as 1/4 or 2")
        return Fraction(int(match[1]), int(match[2] or 1))

    def word(self) -> str:
        if not isinstance(self.value, str):
            raise self.fail(f"{_short(self.value)} is not a string", "write it in quotes")
        return self.value

    def name(self) -> str:
        """A name that can stand on one line of a file and of a terminal."""
        name = self.word()
        if not is_name(name):
            raise self.fail(
                f"the name {_short(name)} cannot be printed on one line",
                f"use at most {_NAME_LENGTH} printable characters, without space at the ends",
            )
        return name

    def op(self) -> Op:
        try:
            return parse_op(self.word())
        except FormatError as error:
            raise self.fail(f"{_short(self.value)} is not an op", error.hint) from None

    def ops(self) -> list[Op]:
        """A whole list of ops; the place of a wrong one is looked up only when there is one."""
        values = self._list()
        try:
            return [parse_op(value) for value in values]
        except (FormatError, TypeError):
            return [item.op() for item in self.items()]

    def _list(self) -> list[Any]:
        if not isinstance(self.value, list):
            raise self.fail(f"{_short(self.value)} is not a list", "write [...]")
        return self.value


def is_name(name: str) -> bool:
    """Whether a schedule's name survives a line of text: printable, trimmed, not endless."""
    return name.isprintable() and name == name.strip() and len(name) <= _NAME_LENGTH


def _short(value: Any) -> str:
    """A value as an error shows it: escaped, and never longer than a line."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return repr(value[:40] if isinstance(value, str) else value)[:60]

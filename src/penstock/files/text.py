"""Schedules as text lanes, for people: read, written by hand, compared line by line.

    # one line per fact about the shape, then one line per lane
    devices: 2
    stages: 2
    slices: 2 x 1
    0 compute: 0F0 0F0.1 0B0.1 0B0
    1 compute: 1F0 1F0.1 1B0.1 1B0

`slices: 2 x 1` is 2 slices in each of 1 microbatch; `slices: 4 2 1` lists three microbatches one by
one. Keys with a default may be left out:

    name: my order              stage_share: 1/2 3/2        slice_share: 1/4 3/4; 1/2 1/2
    boundary_bytes: 4096 4096   skips: 0-3 1-2              slice_share: 1/4 3/4
    weightless: 1 4             copies: 2                   embed: E         loss: S
    ties: 0-3                   layers: 9 9 9 5             to_attention: weights
    kind_share: W 1/2 1; act 1/2 0

(slice shares given once are those of every microbatch)

and these may be repeated, one line for each:

    pair: 0F1 1B0         the two run braided         loan: 3F0.3 0F1 2   heavy op, light op, slices
    after: 1F0 0F1        1F0 waits for 0F1           gang: 2F0           stands in several lanes
    share: 0O0 1/2        how much an offload moves

Lines that start with # are comments.
"""

import re
from collections.abc import Callable
from typing import Any

from penstock.core.schedule import Schedule
from penstock.core.shape import MAX_OPS
from penstock.errors import FormatError, nearest
from penstock.files._node import Node, NodePath
from penstock.files._tree import SHAPE_FIELDS, from_tree, to_tree

__all__ = ["dumps", "loads"]

_REPEATED = {"pair": "pairs", "loan": "loans", "gang": "gangs", "after": "after", "share": "shares"}
_KEYS = ("name", *SHAPE_FIELDS, *_REPEATED)

_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


def dumps(schedule: Schedule) -> str:
    """The schedule as text lanes; only what differs from its default is written."""
    tree = to_tree(schedule)
    lines = [f"name: {tree['name']}"] if "name" in tree else []
    lines += [f"{key}: {_spell(key, value)}" for key, value in tree["shape"].items()]
    for key, plural in _REPEATED.items():
        lines += [f"{key}: {_joined(value)}" for value in tree.get(plural, ())]
    lines += [
        f"{lane['device']} {lane['stream']}: {_joined(lane['ops'])}" for lane in tree["lanes"]
    ]
    return "\n".join(lines) + "\n"


def _spell(key: str, value: Any) -> str:
    if key in ("skips", "ties"):
        return " ".join(f"{source}-{target}" for source, target in value)
    if key == "slice_share":
        return "; ".join(map(_joined, value))
    if key == "kind_share":
        return "; ".join(f"{name} {_joined(shares)}" for name, shares in value)
    if key == "slices" and len(set(value)) == 1:
        return f"{value[0]} x {len(value)}"
    return _joined(value)


def _joined(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def loads(text: str, name: str = "") -> Schedule:
    """The schedule that text lanes say; `name` is for files that do not name it."""
    reader = _Reader(text)
    return from_tree(Node(reader.tree(), (), reader.where), name)


class _Reader:
    """Lines of a text, turned into a tree that remembers which line each part came from."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.line_of: dict[NodePath, int] = {}

    def tree(self) -> dict[str, Any]:
        tree: dict[str, Any] = {"shape": {}, "lanes": []}
        for number, line in enumerate(self.lines, 1):
            start = line.lstrip()[:1]
            if start and start != "#":
                self._read(tree, number, line)
        return tree

    def _read(self, tree: dict[str, Any], number: int, line: str) -> None:
        head, colon, value = line.partition(":")
        words = head.split()
        if colon and len(words) == 2 and words[0].isdecimal():
            device, stream = words
            lane = {"device": _number(device), "stream": stream, "ops": value.split()}
            self._append(tree, "lanes", lane, number)
        elif colon and len(words) == 1:
            self._read_key(tree, words[0], value, number)
        else:
            raise self._fail(
                number,
                f"{line.strip()[:40]!r} is neither a key nor a lane",
                "write `key: value`, or a lane as `0 compute: 0F0 0B0`",
            )

    def _read_key(self, tree: dict[str, Any], key: str, value: str, number: int) -> None:
        if key in _REPEATED:
            self._append(tree, _REPEATED[key], _record(key, value), number)
            return
        if key not in _KEYS:
            hint = nearest(key[:40], _KEYS)
            raise self._fail(number, f"the key {key[:40]!r} is not known", hint)
        into, path = (tree, ()) if key == "name" else (tree["shape"], ("shape",))
        if key in into:
            before = self.line_of[*path, key]
            hint = f"keep one of them; the other is on line {before}"
            raise self._fail(number, f"the key {key!r} is given twice", hint)
        self.line_of[*path, key] = number
        into[key] = self._slices(value) if key == "slices" else _VALUES.get(key, _numbers)(value)

    def _slices(self, value: str) -> list[int | str]:
        """`SLICES x MICROBATCHES`, or the slices of each one; no list is made for too many."""
        words = value.split()
        if len(words) != 3 or words[1] != "x" or not _NUMBER.fullmatch(words[2]):
            return _numbers(value)
        microbatches = int(words[2])
        if 2 * microbatches > MAX_OPS:
            raise self._fail(
                self.line_of["shape", "slices"],
                f"{microbatches:,} microbatches are above the limit of {MAX_OPS:,} ops",
                "lower the number of microbatches",
            )
        return [_number(words[0])] * microbatches

    def _append(self, tree: dict[str, Any], key: str, value: Any, number: int) -> None:
        values = tree.setdefault(key, [])
        self.line_of[key, len(values)] = number
        values.append(value)

    def _fail(self, number: int, message: str, hint: str) -> FormatError:
        column = _columns(self.lines[number - 1], r"\S+", 0)[0]
        return FormatError(message, line=number, column=column, hint=hint)

    def where(self, path: NodePath) -> tuple[int, int]:
        """Line and column of a path: of the value at fault, or else of the line's beginning."""
        for length in (2, 1):
            if path[:length] in self.line_of:
                number = self.line_of[path[:length]]
                return number, _column(self.lines[number - 1], path[:length], path[length:])
        return 1, 1


def _column(line: str, key: NodePath, rest: NodePath) -> int:
    """Column of the value that `rest` names among those on the line of `key`."""
    colon = line.index(":") + 1
    if rest == ("stream",):
        return _columns(line, r"\S+", 0)[1]
    if key[0] == "lanes" and rest[:1] != ("ops",):
        return _columns(line, r"\S+", 0)[0]
    numbers = [step for step in rest if isinstance(step, int)]
    grouped: dict[NodePath, int] = {("shape", "slice_share"): 2, ("shape", "kind_share"): 3}
    if len(numbers) == grouped.get(key):
        for _ in range(numbers.pop(0)):
            colon = line.index(";", colon) + 1
    if key == ("shape", "kind_share") and len(numbers) == 2:
        numbers = [numbers[1] + 1]  # the name stands in front of the shares
    columns = _columns(line, r"[^\s;]+", colon) or [colon]
    return columns[numbers[0] if numbers and numbers[0] < len(columns) else 0]


def _columns(line: str, pattern: str, start: int) -> list[int]:
    """Columns, from 1, at which a pattern is found."""
    return [match.start() + 1 for match in re.compile(pattern).finditer(line, start)]


def _number(word: str) -> int | str:
    """A number where it is one; other words are refused where the tree is read."""
    return int(word) if _NUMBER.fullmatch(word) else word


def _numbers(value: str) -> list[int | str]:
    return [_number(word) for word in value.split()]


def _named_shares(value: str) -> list[Any]:
    """A name and the shares behind it."""
    name, *shares = value.split() or [""]
    return [name, shares]


def _record(key: str, value: str) -> Any:
    """The value of a repeated key: a gang is one op, the others are several words."""
    words: list[Any] = value.split()
    if key == "loan":
        words[2:] = map(_number, words[2:])
    return value.strip() if key == "gang" else words


def _stage_pairs(value: str) -> list[list[Any]]:
    """Pairs of stages, such as `0-3 1-2`."""
    return [list(map(_number, pair.split("-"))) for pair in value.split()]


_VALUES: dict[str, Callable[[str], Any]] = {
    "name": str.strip,
    "devices": lambda value: _number(value.strip()),
    "stages": lambda value: _number(value.strip()),
    "stage_share": str.split,
    "kind_share": lambda value: list(map(_named_shares, value.split(";"))),
    "slice_share": lambda value: [group.split() for group in value.split(";")],
    "skips": _stage_pairs,
    "ties": _stage_pairs,
    "copies": lambda value: _number(value.strip()),
    "embed": str.strip,
    "loss": str.strip,
    "to_attention": str.strip,
}

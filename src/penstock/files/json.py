"""Schedules as JSON, for programs: one object, with a format name and a version.

    {
      "format": "penstock-schedule",
      "version": 1,
      "name": "two microbatches",
      "shape": {"devices": 1, "stages": 1, "slices": [1, 1]},
      "lanes": [
        {"device": 0, "stream": "compute", "ops": ["0F0", "0B0", "0F1", "0B1"]}
      ]
    }

An op is its text form, a share a text such as "1/4": JSON's own numbers are not exact. The standard
decoder forgets where a value stood, so the place of a wrong one is found by walking the text again.
"""

import json
import re
from collections import Counter
from typing import Any

from penstock.core.schedule import Schedule
from penstock.errors import FormatError
from penstock.files._node import Node, NodePath
from penstock.files._tree import TREE_KEYS, from_tree, to_tree

__all__ = ["FORMAT", "VERSION", "dumps", "loads"]

FORMAT = "penstock-schedule"
VERSION = 1

_LONGEST_NUMBER = 19
"""Digits after which a number is above every limit, whatever follows."""

_SPACE = re.compile(r"[ \t\n\r]*")
_SKIP = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


class _Object(dict[str, Any]):
    """A JSON object that remembers a key it was given twice."""

    repeated: str | None = None


def dumps(schedule: Schedule) -> str:
    """The schedule as JSON, one lane and one annotation per line."""
    tree = {"format": FORMAT, "version": VERSION, **to_tree(schedule)}
    members = [f'  "{key}": {_spell(value)}' for key, value in tree.items()]
    return "{\n" + ",\n".join(members) + "\n}\n"


def _spell(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(f"    {json.dumps(item)}" for item in value) + "\n  ]"


def loads(text: str, name: str = "") -> Schedule:
    """The schedule that a JSON text says; `name` is for files that do not name it."""
    try:
        root = Node(_decode(text), (), lambda path: _place(text, path))
        return from_tree(_strip_header(root), name)
    except RecursionError:
        raise FormatError(
            "the text is nested too deeply to be a schedule", hint="lists nest at most 3 deep here"
        ) from None


def _decode(text: str) -> Any:
    try:
        return json.loads(text, parse_int=_integer, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise FormatError(
            f"this is not JSON: {error.msg}",
            line=error.lineno,
            column=error.colno,
            hint="check the commas, quotes and brackets around this place",
        ) from None


def _integer(text: str) -> int:
    """A number, cut where it is too large anyway, because converting it takes quadratic time."""
    return int(text[:_LONGEST_NUMBER])


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        found.repeated = counts.most_common(1)[0][0]
    return found


def _strip_header(root: Node) -> Node:
    """The tree without its format name and version, which must be the ones we know."""
    found = root.members(("format", "version", *TREE_KEYS), needed=("format", "version"))
    for key, wanted in (("format", FORMAT), ("version", VERSION)):
        if type(found[key].value) is not type(wanted) or found[key].value != wanted:
            raise found[key].fail(
                f"the {key} is not {wanted!r}",
                f"only {FORMAT} files of version {VERSION} can be read",
            )
    return root._replace(value={key: found[key].value for key in TREE_KEYS if key in found})


def _place(text: str, path: NodePath) -> tuple[int, int]:
    """Line and column of what stands at a path, or of the nearest thing around it."""
    offset = value = _after_space(text, 0)
    for step in path:
        if text[value] not in "[{":
            break
        offset, value = _member(text, value, step)
    line_start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, offset) + 1, offset - line_start + 1


def _member(text: str, at: int, step: str | int) -> tuple[int, int]:
    """Where a member of the list or object at `at` starts, its key included, and its value."""
    found = (at, at)
    keyed = text[at] == "{"
    number = 0
    at = _after_space(text, at + 1)
    while text[at] not in "]}":
        label: str | int = number
        start = at
        if keyed:
            label, at = _SKIP.raw_decode(text, at)
            at = _after_space(text, _after_space(text, at) + 1)
        if label == step:
            found = (start, at)  # the last one wins, as in the decoder
        at = _after_space(text, _SKIP.raw_decode(text, at)[1])
        if text[at] == ",":
            at = _after_space(text, at + 1)
        number += 1
    return found


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at

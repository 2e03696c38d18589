"""JSON files that others wrote: `config.json`, an index of tensors.

The standard decoder takes what no later step is ready for: numbers of thousands of digits, half a
character, text that is nested without end, a file without end. All of it is refused here, so that
whoever reads the object meets plain values only.
"""

import json
from pathlib import Path
from typing import Any

from penstock.errors import FormatError, ShapeError, shown
from penstock.files.regular import read_regular

MOST_DIGITS = 19
"""Digits of the largest whole number that a processor has."""


def read_object(path: Path, hint: str) -> dict[str, Any]:
    """The object in a JSON file; `hint` says what to give instead of a file that is not there."""
    try:
        content = read_regular(path)
    except OSError as error:
        raise ShapeError(
            f"cannot read {shown(str(path), 300)}: {error.strerror}", hint=hint
        ) from None
    found = _decode(path, content)
    if not isinstance(found, dict):
        raise FormatError(f"{str(path)!r} holds no JSON object", hint="it begins with {")
    return found


def decode_json(text: str, what: str, **hooks: Any) -> Any:
    """What a text in JSON says, or the place where it is none; `what` is how an error calls it."""
    try:
        return json.loads(text, **hooks)
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{what} is not JSON: {error.msg}",
            line=error.lineno,
            column=error.colno,
            hint="check the commas, quotes and brackets around this place",
        ) from None


def _decode(path: Path, content: bytes) -> Any:
    try:
        found = decode_json(content.decode("utf-8-sig"), repr(str(path)), parse_int=_integer)
        json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair cannot be written
    except UnicodeError:
        raise FormatError(
            f"{str(path)!r} contains an invalid character", hint="save it as UTF-8 text"
        ) from None
    except RecursionError:
        raise FormatError(f"{str(path)!r} is nested too deeply", hint="nest less") from None
    except ValueError as error:
        raise FormatError(f"{str(path)!r} has {error}", hint="give a smaller number") from None
    return found


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text):,} characters")
    return int(text)

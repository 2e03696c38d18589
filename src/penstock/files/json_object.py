"""JSON files that others wrote: `config.json`, an index of tensors.

The standard decoder takes what no later step is ready for: numbers of thousands of digits, half a
character, text that is nested without end, a file without end. All of it is refused here, so that
whoever reads the object meets plain values only.
"""

import json
from pathlib import Path
from typing import Any

from penstock.errors import FormatError, ShapeError, shown
from penstock.files.regular import open_regular

MAX_OBJECT_BYTES = 1 << 28
"""Files above this hold no description of a model; the index of a large one has some megabytes."""
MOST_DIGITS = 19
"""Digits of the largest whole number that a processor has."""


def read_object(path: Path, hint: str) -> dict[str, Any]:
    """The object in a JSON file; `hint` says what to give instead of a file that is not there."""
    try:
        with open_regular(path) as file:
            content = file.read(MAX_OBJECT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ShapeError(f"cannot read {shown(str(path), 300)}: {reason}", hint=hint) from None
    if len(content) > MAX_OBJECT_BYTES:
        raise ShapeError(f"{str(path)!r} is larger than {MAX_OBJECT_BYTES:,} bytes", hint=hint)
    found = _decode(path, content)
    if not isinstance(found, dict):
        raise FormatError(f"{str(path)!r} holds no JSON object", hint="it begins with {")
    return found


def _decode(path: Path, content: bytes) -> Any:
    try:
        found = json.loads(content.decode("utf-8-sig"), parse_int=_integer)
        json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair cannot be written
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{str(path)!r} is not JSON: {error.msg}",
            line=error.lineno,
            column=error.colno,
            hint="check the commas, quotes and brackets around this place",
        ) from None
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

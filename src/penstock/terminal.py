"""The one way of text to a terminal: nothing that a file says can steer it.

A key of a configuration, the name of a tensor or a line of data may hold characters that move the
cursor, clear the screen, change the title or turn the direction of writing. What is printed has
them as their numbers. Colours of our own are the one exception, and only on standard output.
"""

import re
import sys
from typing import TextIO

_STEERING = re.compile(
    r"\r(?!\n)"  # alone, it goes back and writes over the line
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # controls, the escape among them
    r"|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"  # ends of lines, directions of writing
    r"|[\ud800-\udfff]"  # half a character, which no encoding has
)
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


def printable(text: str) -> str:
    r"""The text with every character that steers a terminal as its number.

    >>> print(printable("a key\x1b[2J, and a line\n"), end="")
    a key\x1b[2J, and a line
    """
    return _STEERING.sub(_number, text)


def printable_colours(text: str) -> str:
    """The same of a picture or a table that has colours."""
    parts = _COLOUR.split(text)
    parts[::2] = map(printable, parts[::2])
    return "".join(parts)


def _number(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def encodable(text: str, stream: TextIO) -> str:
    """The text with a ? for what the stream cannot show."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def say_to(stream: TextIO, text: str) -> None:
    """Print a line or several for a person."""
    print(encodable(printable(text), stream), file=stream, flush=True)


def say_error(text: str) -> None:
    """Print words where people look for errors."""
    say_to(sys.stderr, text)

"""Messages and pages in plain words: no figure of speech, no idiom, no rare word."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from house.docs import without_code
from house.source import PACKAGE, docstrings, pages, python_sources

FIGURES = {
    "anew": "again, or from the beginning",
    "refut(?:e|es|ed)": "not valid",
    "pric(?:e|es|ed|ing)": "cost, times and sizes, or simulate",
    "unless told otherwise": "by default",
    "in front of": "before",
    "behind": "after",
    "beside": "next to, or in addition to",
    "lives": "is",
    "may live": "may be",
    "nobody|somebody": "what it is: no op, no rank, another process",
    "stands? (?:in|at|on|where|between|below)": "is",
    "tells": "explains",
    "go(?:es)? on|going on|went on": "continue, or resume",
    "judge[sd]?": "reference, or check",
    "nevertheless": "anyway",
    "misuse": "usage error",
    "yardstick": "baseline",
    "left with exit code": "exited with code",
    r"since(?= \d| $)": "has been ... for",
    "(?<!there )(?:is|are) no(?! longer| more| less| worse| earlier| later)": "is not a",
}
"""What a reader whose first language is not English may not know, and what is said here instead."""

RECORDS = "docs/decisions/"
"""Decisions are records of their time."""

_PATTERNS = {
    re.compile(rf"\b(?:{figure})(?!\w)".replace(" ", r"\s"), re.IGNORECASE): plain
    for figure, plain in FIGURES.items()
}


def figures(root: Path) -> list[str]:
    """Figures of speech in what a user reads."""
    return [
        f"{path}:{first + text.count(chr(10), 0, found.start())}: {found[0]!r} is not plain; "
        f"say {plain}"
        for path, first, text in _told(root)
        for pattern, plain in _PATTERNS.items()
        for found in pattern.finditer(text)
    ]


def _told(root: Path) -> Iterator[tuple[str, int, str]]:
    """Path, first line and text of every message, help text and page; code is not prose."""
    for source in python_sources(root):
        prose = docstrings(source.tree)
        for node in ast.walk(source.tree):
            if _is_message(node) and node not in prose:
                yield f"src/{PACKAGE}/{source.path}", node.lineno, node.value
    for page in pages(root):
        path = page.relative_to(root).as_posix()
        if not path.startswith(RECORDS):
            yield path, 1, without_code(page.read_text())


def _is_message(node: ast.AST) -> TypeGuard[ast.Constant]:
    """Whether it is a text of several words."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value

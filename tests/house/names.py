"""Names: one thing each, and what a function does or returns."""

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from house.source import PACKAGE, Source, python_sources

PARTICIPLE = re.compile(r"[a-z]+(?:ed|ing)")


def repeated(root: Path, reviewed: Collection[str]) -> list[str]:
    """Public names that several modules define, but for those that are naturally per module."""
    return [
        f"{name} is defined in {', '.join(places)}: give all but one a name of their own"
        for name, places in sorted(homes(root).items())
        if len(places) > 1 and name not in reviewed
    ]


def homes(root: Path) -> dict[str, list[str]]:
    """Where each public name is defined; what is imported from elsewhere is the same thing."""
    found: dict[str, list[str]] = {}
    for source in python_sources(root):
        for line, name in definitions(source):
            found.setdefault(name, []).append(f"src/{PACKAGE}/{source.path}:{line}")
    return found


def definitions(source: Source) -> Iterator[tuple[int, str]]:
    """Line and name of every public function, class and constant at the top of a module.

    A type variable is none of them: it stands for whatever the function around it is given.
    """
    for node in source.tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined = name
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not _is_variable(value):
                defined = name
            case ast.AnnAssign(target=ast.Name(id=name)):
                defined = name
            case _:
                continue
        if not defined.startswith("_"):
            yield node.lineno, defined


def _is_variable(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("TypeVar", "ParamSpec")


def participles(root: Path, reviewed: Collection[str]) -> list[str]:
    """Functions called by a single word in -ed or -ing, which is neither a verb nor a noun."""
    return [
        f"{where}: {name} is a bare participle; say what the function does or what it returns"
        for where, name in _single_words(root)
        if name not in reviewed
    ]


def _single_words(root: Path) -> Iterator[tuple[str, str]]:
    for source in python_sources(root):
        for node in source.tree.body:
            if isinstance(node, ast.FunctionDef) and PARTICIPLE.fullmatch(node.name):
                yield f"src/{PACKAGE}/{source.path}:{node.lineno}", node.name


def unneeded(root: Path, names: Collection[str], words: Collection[str]) -> list[str]:
    """Reviewed names that are defined once, and reviewed words that no function is called by."""
    found = homes(root)
    spoken = {name for _, name in _single_words(root)}
    return [
        *(
            f"{name} is reviewed, but not repeated"
            for name in names
            if len(found.get(name, "")) < 2
        ),
        *(f"{word} is reviewed, but names no function" for word in words if word not in spoken),
    ]

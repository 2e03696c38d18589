"""The files that register schedules, their pages and their golden files agree."""

import ast
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from house.source import PACKAGE, Source
from penstock.schedules import Spec, modules

GOLDEN = "tests/golden"
PAGES = "docs/schedules"
SCHEDULES = "schedules"
SEARCH = "search"


def owners() -> dict[str, str]:
    """Name of each registered schedule -> the file that defines it."""
    found: dict[str, str] = {}
    for module in modules():
        for value in vars(import_module(module)).values():
            if isinstance(value, Spec):
                found.setdefault(value.name, module.partition(".")[2].replace(".", "/") + ".py")
    return found


def reading_order(root: Path) -> list[str]:
    """The files named in the order of reading, read from its text."""
    text = (root / "src" / PACKAGE / SCHEDULES / "__init__.py").read_text()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "READING_ORDER":
            return list(ast.literal_eval(node.value))
    return []


def _registers(source: Source) -> bool:
    """Whether a file decorates a function with `@schedule(...)`."""
    return any(
        isinstance(mark, ast.Call) and ast.unparse(mark.func) == "schedule"
        for function in source.functions()
        for mark in function.decorator_list
    )


def files_and_order(root: Path) -> list[str]:
    """Files of the folder without a schedule, and names in the order that are stale or repeated."""
    package = root / "src" / PACKAGE
    folder = sorted((package / SCHEDULES).glob("[!_]*.py"))
    above = sorted((package / SEARCH).rglob("[!_]*.py"))
    paths = {path: Source(root, path.relative_to(package).as_posix()) for path in folder + above}
    known = {path.stem for path, source in paths.items() if _registers(source)}
    names = reading_order(root)
    order = f"READING_ORDER of src/{PACKAGE}/{SCHEDULES}/__init__.py"
    return [
        *(
            f"src/{PACKAGE}/{SCHEDULES}/{path.name} registers no schedule: decorate its generator "
            f"with @schedule(...), or move what schedules share to {SCHEDULES}/generators/"
            for path in folder
            if path.stem not in known
        ),
        *(
            f"{order} names {name!r}, which registers nothing"
            for name in names
            if name not in known
        ),
        *(f"{order} names {name!r} twice" for name in sorted(set(names)) if names.count(name) > 1),
    ]


def pages_and_golden(root: Path, names: Iterable[str]) -> list[str]:
    """Schedules without a page or golden lanes, and pages and golden lanes without a schedule."""
    known = set(names)
    complaints: list[str] = []
    for folder, suffix in ((PAGES, ".md"), (GOLDEN, ".txt")):
        found = {path.stem for path in (root / folder).glob(f"*{suffix}")} - {"index", "README"}
        complaints += [f"{folder}/{name}{suffix} is missing" for name in sorted(known - found)]
        complaints += [
            f"{folder}/{name}{suffix} is of no schedule" for name in sorted(found - known)
        ]
    return complaints

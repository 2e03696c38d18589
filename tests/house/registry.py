"""The registry list, the folder of schedules, their pages and their golden files agree."""

import ast
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from house.source import PACKAGE
from penstock.schedules import MODULES, Spec

GOLDEN = "tests/golden"
PAGES = "docs/schedules"


def owners() -> dict[str, str]:
    """Name of each registered schedule -> the file that defines it."""
    found: dict[str, str] = {}
    for module in MODULES:
        name = dotted(module)
        for value in vars(import_module(name)).values():
            if isinstance(value, Spec):
                found.setdefault(value.name, name.partition(".")[2].replace(".", "/") + ".py")
    return found


def dotted(module: str) -> str:
    """The full name of a module of the list; those of the folder are listed without it."""
    return module if "." in module else f"{PACKAGE}.schedules.{module}"


def listed(root: Path) -> list[str]:
    """The modules in the registry list, read from its text."""
    text = (root / "src" / PACKAGE / "schedules/__init__.py").read_text()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODULES":
            return list(ast.literal_eval(node.value))
    return []


def list_and_folder(root: Path) -> list[str]:
    """Modules of the folder that the list lacks, the other way round, and repetitions."""
    folder = root / "src" / PACKAGE / "schedules"
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    names = listed(root)
    return [
        *(f"schedules/{name}.py is not in MODULES" for name in sorted(files - set(names))),
        *(
            f"MODULES has {name!r}, but there is no such file"
            for name in names
            if not (root / "src" / (dotted(name).replace(".", "/") + ".py")).exists()
        ),
        *(f"MODULES has {name!r} twice" for name in sorted(set(names)) if names.count(name) > 1),
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

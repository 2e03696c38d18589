"""What a module says is public, and what it is."""

import ast
from importlib import import_module
from pathlib import Path

from house.source import PACKAGE, Source, python_sources


def announced(source: Source) -> list[str] | None:
    """The names in `__all__`, or None where there is none."""
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return None


def offered(source: Source) -> set[str]:
    """Public names that a module defines, or brings up from its own package without using them."""
    used = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    found: set[str] = set()
    for node in source.tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.ImportFrom(module=str(module)) if module.startswith(f"{source.module}."):
                found |= {alias.asname or alias.name for alias in node.names} - used
    return {name for name in found if not name.startswith("_")}


def unannounced(root: Path) -> list[str]:
    """Differences between `__all__` and what is offered, wherever there is an `__all__`."""
    complaints: list[str] = []
    for source in python_sources(root):
        names = announced(source)
        if names is None:
            continue
        where = f"src/{PACKAGE}/{source.path}"
        complaints += [
            f"{where}: {name} is public, but not in __all__"
            for name in sorted(offered(source) - set(names))
        ]
        complaints += [f"{where}: __all__ is not sorted at {name}" for name in _misplaced(names)]
    return complaints


def _misplaced(names: list[str]) -> list[str]:
    return [name for name, wanted in zip(names, sorted(names, key=_order)) if name != wanted][:1]


def _order(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then functions: the order that the linter keeps too."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


def missing(module: str) -> list[str]:
    """Names in the `__all__` of a loaded module that cannot be had from it."""
    loaded = import_module(module)
    return [
        f"{module}.__all__ has {name}, but it cannot be imported"
        for name in loaded.__all__
        if not hasattr(loaded, name)
    ]

"""Who imports whom: imports go only downwards, and heavy packages stay in their layers."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from house.source import PACKAGE, TORCH_LAYERS, Source, python_sources

_BELOW_PLAN = ("core", "schedules", "transform", "check", "lower", "arch", "cost", "sim")
_BELOW_RUN = (*_BELOW_PLAN, "search", "plan", "files", "draw")
_ALL = (*_BELOW_RUN, *TORCH_LAYERS, "cli", "bench", "web", PACKAGE)

ALLOWED: dict[str, tuple[str, ...]] = {
    "errors": (),
    "core": (),
    "schedules": ("core",),
    "transform": ("core",),
    "check": ("core",),
    "files": ("core",),
    "arch": (),
    "cost": ("core", "arch"),
    "lower": ("core", "check"),
    "sim": ("core", "check", "lower", "cost"),
    "search": _BELOW_PLAN,
    "plan": _BELOW_PLAN,
    "draw": ("core", "sim.timeline"),
    **dict.fromkeys(TORCH_LAYERS[:-1], (*_BELOW_RUN, *TORCH_LAYERS)),
    "model": ("arch", "data"),
    "cli": _ALL,
    "bench": _ALL,
    "bench.measure": (*_BELOW_RUN, *TORCH_LAYERS),
    "web": _ALL,
    PACKAGE: _ALL,
    "__main__": _ALL,
}
"""Layers (or single modules of one) that each layer may import, beside itself and `errors`."""

FOREIGN: dict[str, tuple[str, ...]] = {
    "numpy": tuple(ALLOWED),
    "numba": ("core", "bench"),
    "ortools": ("search",),
    "pydantic": ("train.config",),
    "pydantic_core": ("train.config",),
    "rich": ("draw", "cli", "bench", "train"),
    "typer": ("cli",),
    "safetensors": ("model",),
    "tokenizers": ("data",),
    "torch": TORCH_LAYERS,
    "wandb": ("train",),
}
"""Packages from outside, and the layers that may import them; others are not dependencies."""


class Import(NamedTuple):
    """One imported module, as a dotted name, and where it is imported."""

    source: Source
    line: int
    target: str
    deferred: bool
    """Inside a function or under TYPE_CHECKING: it does not run when the module is loaded."""

    @property
    def where(self) -> str:
        return f"src/{PACKAGE}/{self.source.path}:{self.line}"


def imports(source: Source, modules: frozenset[str]) -> Iterator[Import]:
    """Every import of a file, also one written as `import_module("name")`."""
    deferred = {
        id(inner)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.Lambda) or _type_checking(node)
        for inner in ast.walk(node)
    }
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
            for target in _targets(node, modules):
                yield Import(source, node.lineno, target, id(node) in deferred)


def _type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _targets(node: ast.Import | ast.ImportFrom | ast.Call, modules: frozenset[str]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        return [
            full if (full := f"{base}.{alias.name}") in modules else base for alias in node.names
        ]
    if node.args and isinstance(node.args[0], ast.Constant):
        name = ast.unparse(node.func).split(".")[-1]
        return [str(node.args[0].value)] if name in ("import_module", "__import__") else []
    return []


def all_imports(root: Path) -> list[Import]:
    files = python_sources(root)
    modules = frozenset(source.module for source in files)
    return [found for source in files for found in imports(source, modules)]


def wrong_directions(root: Path) -> list[str]:
    """Imports between layers that the table does not allow."""
    return [complaint for found in all_imports(root) if (complaint := _direction(found))]


def _direction(found: Import) -> str:
    layer = found.source.layer
    if found.target.startswith("."):
        return f"{found.where}: relative import of {found.target}; write it in full"
    if found.target.split(".")[0] != PACKAGE:
        return ""
    room = next((name for name in reversed(ALLOWED) if _inside(layer, name)), "")
    if not room:
        return f"{found.where}: layer {layer} is not in the table of tests/house/imports.py"
    inside = found.target.removeprefix(PACKAGE).lstrip(".") or PACKAGE
    allowed = (room, "errors", *ALLOWED[room])
    if any(_inside(inside, name) for name in allowed):
        return ""
    return f"{found.where}: imports {found.target}, but {layer} may import {', '.join(allowed)}"


def _inside(module: str, folder: str) -> bool:
    """Whether a dotted name is that of a folder or of something in it."""
    return module == folder or module.startswith(f"{folder}.")


def wrong_packages(root: Path, standard: frozenset[str]) -> list[str]:
    """Imports from outside that the importing layer may not have, torch above all."""
    complaints: list[str] = []
    for found in all_imports(root):
        package = found.target.split(".")[0]
        if package in standard or package in (PACKAGE, "") or found.target.startswith("."):
            continue
        layers = FOREIGN.get(package, ())
        if not any(_inside(found.source.layer, layer) for layer in layers):
            allowed = ", ".join(layers) or "no layer"
            complaints.append(f"{found.where}: imports {found.target}, but {allowed} may do so")
    return complaints


def cycles(root: Path) -> list[str]:
    """Modules that cannot be loaded without each other."""
    needs: dict[str, set[str]] = {}
    for found in all_imports(root):
        if found.target.startswith(PACKAGE) and not found.deferred:
            needs.setdefault(found.source.module, set()).add(found.target)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return [f"import cycle: {' <- '.join(error.args[1])}"]
    return []

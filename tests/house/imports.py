"""Who imports whom: only downwards, room by room; heavy packages stay in their layers."""

import ast
from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from house.source import PACKAGE, TORCH_LAYERS, Source, python_sources

_BELOW_PLAN = ("core", "schedules", "transform", "check", "lower", "arch", "cost", "sim")
_BELOW_RUN = (*_BELOW_PLAN, "search", "plan", "files", "draw")
_MODEL = (
    "arch",
    "data",
    "model.parallel",
    "model.attention",
    "model.layers",
    "model.stages",
)
_STEP = ("core", *_MODEL, "model.io", "run.process", "run.program", "run.comm", "run.host")
_RUN = (
    *_STEP,
    "run.execute",
    "run.watchdog",
    "run.launch",
    "run.step",
    "run.observe",
    "run.policies",
)
_BELOW_LOOP = ("train.config", "train.records", "train.checkpoint", "train.report")

ALLOWED: dict[str, tuple[str, ...]] = {
    "display": (),
    "errors": (),
    "parent_process": (),
    "terminal": (),
    "core": ("terminal", "display"),
    "schedules": ("core",),
    "transform": ("core",),
    "check": ("core",),
    "files": ("core",),
    "arch": (),
    "cluster": ("files",),
    "cost": ("core", "arch"),
    "lower": ("core", "check"),
    "sim": ("core", "check", "lower", "cost", "display"),
    "search": (*_BELOW_PLAN, "parent_process"),
    "plan": (*_BELOW_PLAN, "parent_process"),
    "draw": ("core", "sim.timeline"),
    "data": ("files",),
    "model.parallel": ("arch",),
    "model.attention": ("arch", "data", "model.parallel"),
    "model.kernels": ("arch",),
    "model.layers": ("arch", "data", "model.parallel", "model.attention", "model.kernels"),
    "model.stages": ("arch", "data", "model.parallel", "model.attention", "model.layers"),
    "model.io": ("arch", "files"),
    "model.decoders": ("arch", "data", "model.attention", "model.stages"),
    "fusion": (*_MODEL, "model.io"),
    "run.process": ("terminal", "parent_process"),
    "run.program": ("core", "lower", "transform", *_MODEL),
    "estimate": (*_BELOW_PLAN, "cluster", "files", "plan", "run.program", "parent_process"),
    "planner": ("core", "schedules", "arch", "cluster", "estimate", "parent_process"),
    "run.comm": ("arch", "core", "model.parallel", "run.process", "run.program"),
    "run.host": ("model.stages",),
    "run.execute": (
        "arch",
        "core",
        "model.parallel",
        "model.attention",
        "model.stages",
        "run.program",
        "run.comm",
        "run.host",
    ),
    "run.watchdog": ("terminal", "core", "check", "run.process", "run.program"),
    "run.launch": ("terminal", "parent_process", "run.process", "run.watchdog"),
    "run.step": (
        *_STEP,
        "schedules",
        "model.decoders",
        "cost",
        "plan",
        "model.kernels",
        "run.execute",
        "run.watchdog",
    ),
    "run.observe": (
        *_BELOW_PLAN,
        "plan",
        "data",
        "model.attention",
        "model.kernels",
        "run.process",
        "run.program",
        "run.execute",
        "run.step",
    ),
    "run.policies": (
        *_BELOW_PLAN,
        "data",
        "search",
        "plan",
        "files",
        "run.comm",
        "run.program",
        "run.step",
        "run.observe",
    ),
    "verify": (*_BELOW_RUN, *_STEP, "model.decoders", "run.launch", "run.step"),
    "train.config": ("core", "arch", "data", "files", "schedules"),
    "train.records": ("terminal", "files", "train.config"),
    "train.checkpoint": ("files", "model.io", "run.comm"),
    "train.report": (
        *("terminal", *_BELOW_RUN, *_RUN, "cluster", "estimate"),
        *("train.config", "train.records"),
    ),
    "train.auto_plan": (
        *(*_BELOW_RUN, *_RUN, "cluster", "estimate", "planner"),
        *("profiling", "profiling.measure", "train.config"),
    ),
    "train.loop": (*_BELOW_RUN, *_RUN, *_BELOW_LOOP, "cluster", "estimate", "train.auto_plan"),
    "bench.measure": (*_BELOW_RUN, *_RUN, "estimate", "verify"),
    "bench": (*_BELOW_RUN, *_RUN, "cluster", "estimate", "verify", "bench.measure"),
    "profiling.measure": (
        *(*_BELOW_RUN, *_RUN, "model.kernels", "cluster", "estimate"),
        *("bench", "bench.measure", "profiling", PACKAGE),
    ),
    "profiling": (*_BELOW_RUN, "cluster", "estimate", "bench"),
    "web": (*_BELOW_RUN, PACKAGE),
    "interface": ("display", *_BELOW_RUN),
    "run": ("run.step", "model.decoders"),
    PACKAGE: ("display", *_BELOW_RUN, "interface", "run", "verify"),
    "cli": (
        "terminal",
        *_BELOW_RUN,
        "estimate",
        "planner",
        *_RUN,
        *_BELOW_LOOP,
        "train.loop",
        "verify",
        "cluster",
        "profiling",
        "bench",
        "fusion",
        PACKAGE,
    ),
    "__main__": ("parent_process", "cli"),
}
"""Rooms (layers, folders or single modules of one) that each may import, beside itself and
`errors`. A file belongs to the longest name that it stands under."""

FOREIGN: dict[str, tuple[str, ...]] = {
    "numpy": tuple(ALLOWED),
    "numba": ("core", "bench"),
    "jinja2": ("data",),
    "ortools": ("plan", "search"),
    "pyarrow": ("data",),
    "pydantic": ("train.config",),
    "pydantic_core": ("train.config",),
    "rich": ("draw", "cli", "bench", "train"),
    "typer": ("cli",),
    "safetensors": ("model",),
    "tokenizers": ("data",),
    "torch": TORCH_LAYERS,
    "transformers": ("model.decoders",),
    "flash_attn": ("model.attention",),
    "triton": ("model.kernels",),
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
    room = room_of(layer)
    if not room:
        return f"{found.where}: layer {layer} is not in the table of tests/house/imports.py"
    inside = found.target.removeprefix(PACKAGE).lstrip(".") or PACKAGE
    allowed = (room, "errors", *ALLOWED[room])
    if any(_inside(inside, name) for name in allowed):
        return ""
    return f"{found.where}: imports {found.target}, but {layer} may import {', '.join(allowed)}"


def room_of(module: str) -> str:
    """The row of the table that a module stands under, or nothing."""
    return max((name for name in ALLOWED if _inside(module, name)), key=len, default="")


def rings(allowed: Mapping[str, Collection[str]]) -> list[str]:
    """Rooms that may import each other, which is no order."""
    below = {room: {room_of(name) or name for name in names} for room, names in allowed.items()}
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        return [f"rooms in a ring: {' <- '.join(error.args[1])}"]
    return []


def arrows(root: Path) -> dict[str, set[str]]:
    """The other folders that the files of each folder import."""
    layers = {source.module: source.layer for source in python_sources(root)}
    folders = {name for name in layers.values() if name not in (PACKAGE, "errors", "__main__")}
    found: dict[str, set[str]] = {}
    for each in all_imports(root):
        target = layers.get(each.target, "")
        if target in folders - {each.source.layer}:
            found.setdefault(each.source.layer, set()).add(target)
    return found


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

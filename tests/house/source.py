"""The source tree as the house rules see it: files, layers and syntax trees.

A rule is a function from a project's root to a list of complaints, so that the same function judges
this repository and a small tree with a seeded mistake in it.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

PACKAGE = "penstock"
TORCH_LAYERS = (
    *("model", "run", "data", "train", "verify", "fusion", "bench.measure"),
    "profiling.measure",
)
SOURCE_SUFFIXES = (".py", ".js", ".css", ".html")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file of the package; `path` is relative to src/penstock, as in core/ops.py."""

    root: Path
    path: str

    @cached_property
    def text(self) -> str:
        return (self.root / "src" / PACKAGE / self.path).read_text()

    @property
    def tree(self) -> ast.Module:
        """What every rule reads and none changes."""
        return _parsed(self.text, self.path)

    @property
    def python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def layer(self) -> str:
        """Folder under the package, as `run.launch`; a file beside the folders is its own layer."""
        *folders, name = self.path.removesuffix(".py").split("/")
        return ".".join(folders) or (PACKAGE if name == "__init__" else name)

    @property
    def runs_torch(self) -> bool:
        """Whether it stands in a layer that may import torch."""
        return any(f"{self.layer}.".startswith(f"{layer}.") for layer in TORCH_LAYERS)

    @property
    def module(self) -> str:
        """Dotted name of a Python file."""
        return module_name(self.path)

    def functions(self) -> list[Function]:
        """Every function and method, nested ones included."""
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @cached_property
    def commands(self) -> set[str]:
        """Functions whose parameters are the flags of a command: an interface, not a call."""
        marked = {
            function.name
            for function in self.functions()
            if any(_registers(mark) for mark in function.decorator_list)
        }
        handed = {
            ast.unparse(node.args[0])
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call) and node.args and _registers(node.func)
        }
        return marked | handed


@cache
def _parsed(text: str, path: str) -> ast.Module:
    """Thirty rules look at the same files."""
    return ast.parse(text, path)


def _registers(node: ast.expr) -> bool:
    """Whether this is `app.command(...)` or `app.callback(...)`."""
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Attribute) and function.attr in ("command", "callback")


def module_name(path: str) -> str:
    """`core/ops.py` is penstock.core.ops, `core/__init__.py` is penstock.core."""
    parts = [PACKAGE, *path.removesuffix(".py").split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(root: Path) -> list[Source]:
    """Every source file of the package, sorted."""
    package = root / "src" / PACKAGE
    paths = (path for path in package.rglob("*") if path.suffix in SOURCE_SUFFIXES)
    return [Source(root, path.relative_to(package).as_posix()) for path in sorted(paths)]


def python_sources(root: Path) -> list[Source]:
    return [source for source in sources(root) if source.python]


def pages(root: Path) -> Iterator[Path]:
    """Every Markdown page of the project."""
    yield from sorted(root.glob("*.md"))
    yield from sorted((root / "docs").rglob("*.md"))


def docstrings(tree: ast.Module) -> set[ast.Constant]:
    """Strings that stand as statements: docstrings, and the notes under attributes."""
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def none_of(complaints: list[str]) -> None:
    """Fail with every complaint on a line of its own."""
    assert not complaints, "\n".join(["", *complaints])

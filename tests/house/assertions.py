"""Tests that cannot fail prove nothing."""

import ast
from collections.abc import Iterator
from pathlib import Path


def hollow(root: Path) -> list[str]:
    """Assertions that hold whatever the code does, and tests that check nothing at all."""
    return [
        f"{path.relative_to(root).as_posix()}:{line}: {complaint}"
        for path in sorted((root / "tests").rglob("*.py"))
        for line, complaint in _complaints(ast.parse(path.read_text()))
    ]


def _complaints(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Assert(test=condition) if _always(condition):
                yield node.lineno, "holds whatever happens"
            case ast.FunctionDef(name=name) if name.startswith("test_") and not _checks(node):
                yield node.lineno, f"{name} checks nothing"


def _always(condition: ast.expr) -> bool:
    match condition:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Tuple(elts=elements):
            return bool(elements)  # the comma belonged outside the bracket
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_always(value) for value in values)
        case _:
            return False


def _checks(test: ast.FunctionDef) -> bool:
    """Whether there is an assertion, or a call, which may assert or expect an error itself."""
    inside = (node for statement in test.body for node in ast.walk(statement))
    return any(isinstance(node, ast.Assert | ast.Raise | ast.Call) for node in inside)

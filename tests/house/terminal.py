"""Text reaches a terminal in one place, where it is made harmless."""

import ast
from pathlib import Path

from house.source import PACKAGE, python_sources

ALLOWED_TO_PRINT = ("terminal.py", "cli/_output.py")
"""Files that write to standard output or standard error themselves."""

STREAMS = ("sys.stdout.write", "sys.stderr.write")


def prints(root: Path) -> list[str]:
    """Calls that write to a terminal, elsewhere than in the files that may."""
    return [
        f"src/{PACKAGE}/{source.path}:{node.lineno}: {ast.unparse(node.func)} writes to a "
        "terminal; use penstock.terminal, which lets no control character through"
        for source in python_sources(root)
        if source.path not in ALLOWED_TO_PRINT
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and _writes(node)
    ]


def _writes(call: ast.Call) -> bool:
    """A `print`, a stream of the process, or a console of rich that is given raw text."""
    name = ast.unparse(call.func)
    if name == "print" or name in STREAMS:
        return True
    safe = call.args and ast.unparse(call.args[0]).startswith("printable(")
    return name.endswith("console.print") and not safe

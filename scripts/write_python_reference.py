"""The reference of the Python interface, written from the interface itself.

`python scripts/write_python_reference.py` writes the signatures of docs/reference/python.md and the
program that it shows anew.
"""

import inspect
import re
from pathlib import Path
from typing import Any

import penstock

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/python.md"
LONGEST = 100
"""Columns of a signature on one line."""

METHODS = {
    "Schedule": ("of", "lane", "renamed"),
    "Shape": ("even",),
    "Program": ("instructions",),
    "Timeline": ("spans",),
    "Picture": ("text", "svg", "save"),
    "ModulePipeline": (
        "__init__",
        "parameters",
        "step",
        "evaluate",
        "clip_grad_norm",
        "close",
    ),
}
"""Methods of public classes that are part of the interface."""

_SIGNATURES = re.compile(r"(?<=<!-- signatures of )([\w, ]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
_PROGRAM = re.compile(r"(?<=^```python )(examples/\w+\.py\n).*?(?=^```$)", re.DOTALL | re.M)


def rewritten(page: str) -> str:
    """The page with signatures and programs as they are now."""
    page = _SIGNATURES.sub(lambda found: found[1] + found[2] + _block(found[1].split(", ")), page)
    return _PROGRAM.sub(lambda found: found[1] + (ROOT / found[1].strip()).read_text(), page)


def _block(names: list[str]) -> str:
    lines = [line for name in names for line in _signatures(name)]
    return "\n".join(["```python", *lines, "```", ""])


def public(name: str) -> Any:
    """What a name stands for, at the top level or among what runs."""
    return getattr(penstock if name in penstock.__all__ else penstock.run, name)


def _signatures(name: str) -> list[str]:
    found = public(name)
    made = f"{'penstock.' if name in penstock.__all__ else 'penstock.run.'}{name}"
    if name not in METHODS:
        return [_signature(made, found)]
    return [
        _signature(made if method == "__init__" else f"{name}.{method}", getattr(found, method))
        for method in METHODS[name]
    ]


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    kept = [each for each in signature.parameters.values() if each.name != "self"]
    if name.rpartition(".")[2][0].isupper():  # what a class makes is said by its name
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    whole = _plain(f"{name}{signature.replace(parameters=kept)}")
    if len(whole) <= LONGEST:
        return whole
    result = whole.rpartition(" -> ")[2]
    parts = "".join(f"    {_plain(part)},\n" for part in _parts(kept))
    ending = f" -> {result}" if " -> " in whole else ""
    return f"{name}(\n{parts}){ending}"


def _parts(parameters: list[inspect.Parameter]) -> list[str]:
    """The parameters as they are written, with the star in front of those that need their name."""
    parts = [str(each) for each in parameters]
    kinds = [each.kind for each in parameters]
    if inspect.Parameter.KEYWORD_ONLY in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    return parts


def _plain(text: str) -> str:
    """Types by their own names, without those of modules."""
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text).replace("<factory>", "{}")
    return re.sub(r"'([A-Z][^']*)'", r"\1", text)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))

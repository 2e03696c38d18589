"""Budgets: how long files and functions may be, and how many switches they may have.

The numbers come from pipeline and simulation libraries that read well: small files, small
functions, few parameters and practically no boolean modes.
"""

import ast
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

from house.imports import arrows
from house.source import PACKAGE, Function, Source, python_sources, sources

FILE_LINES = 300
FILE_MEDIAN = 120
FUNCTION_LINES = 60
FUNCTION_NINE_TENTHS = 35
FUNCTION_MEDIAN = 8
PARAMETERS = 7
SWITCHES_PER_HUNDRED = 2

Rule = Callable[[Path], list[str]]


def lines(source: Source) -> int:
    return source.text.count("\n")


def length(function: Function) -> int:
    """From the line of `def` to the last, signature and docstring included."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def nine_tenths(values: Sequence[int]) -> float:
    """The value that nine of ten do not exceed."""
    return quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else max(values)


def parameters(function: Function) -> int:
    """Parameters a caller fills in."""
    spec = function.args
    named = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    starred = [spec.vararg, spec.kwarg]
    own = sum(argument.arg in ("self", "cls") for argument in named[:1])
    return len(named) - own + sum(argument is not None for argument in starred)


def switches(function: Function) -> int:
    """Parameters that default to True or False: a mode, most of the time."""
    defaults = [*function.args.defaults, *function.args.kw_defaults]
    return sum(
        isinstance(node, ast.Constant)
        and node.value in (True, False)
        and isinstance(node.value, bool)
        for node in defaults
    )


def is_kernel(function: Function) -> bool:
    """A loop over arrays that may be compiled, or a part of one: its parameters are columns. So is
    a kernel of a GPU, whose parameters are pointers and strides."""
    marks = {ast.unparse(mark).split("(")[0] for mark in function.decorator_list}
    return bool(marks & {"kernel", "part", "triton.jit"})


def _where(source: Source, function: Function) -> str:
    return f"src/{PACKAGE}/{source.path}:{function.lineno}: {function.name}"


def _functions(root: Path) -> list[tuple[str, Function]]:
    return [
        (_where(file, node), node) for file in python_sources(root) for node in file.functions()
    ]


def _called(root: Path) -> list[tuple[str, Function]]:
    """Functions that code calls; a command is called by the user, with flags."""
    return [
        (_where(file, node), node)
        for file in python_sources(root)
        for node in file.functions()
        if node.name not in file.commands
    ]


def long_files(root: Path) -> list[str]:
    return [
        f"src/{PACKAGE}/{source.path}: {lines(source)} lines, budget {FILE_LINES}"
        for source in sources(root)
        if lines(source) > FILE_LINES
    ]


def long_functions(root: Path) -> list[str]:
    return [
        f"{where} has {length(function)} lines, budget {FUNCTION_LINES}"
        for where, function in _functions(root)
        if length(function) > FUNCTION_LINES
    ]


def wide_functions(root: Path) -> list[str]:
    return [
        f"{where} has {parameters(function)} parameters, budget {PARAMETERS}"
        for where, function in _called(root)
        if parameters(function) > PARAMETERS and not is_kernel(function)
    ]


def typical_sizes(root: Path) -> list[str]:
    """The medians and the nine tenths, which one exception does not move."""
    files = [lines(source) for source in python_sources(root) if lines(source)]
    functions = [length(function) for _, function in _functions(root)]
    figures = (
        ("median file", median(files), FILE_MEDIAN),
        ("median function", median(functions), FUNCTION_MEDIAN),
        ("nine tenths of the functions", nine_tenths(functions), FUNCTION_NINE_TENTHS),
    )
    return [
        f"{name}: {value:g} lines, budget {budget}"
        for name, value, budget in figures
        if value > budget
    ]


def mode_switches(root: Path) -> list[str]:
    """Every boolean default, once there are more of them than the budget allows."""
    functions = _called(root)
    found = [(where, count) for where, node in functions if (count := switches(node))]
    total = sum(count for _, count in found)
    if total * 100 <= SWITCHES_PER_HUNDRED * len(functions):
        return []
    return [f"{where} has {count} boolean default(s)" for where, count in found]


def table(root: Path) -> list[str]:
    """Files, lines, arrows (to other folders), largest file and function of every folder."""
    layers: dict[str, list[Source]] = {}
    for source in sources(root):
        layers.setdefault(source.layer, []).append(source)
    out = arrows(root)
    heads = ("folder", "files", "lines", "arrows", "longest file", "longest function")
    rows: list[tuple[str, ...]] = [heads]
    rows += [(name, *_row(files, len(out.get(name, ())))) for name, files in sorted(layers.items())]
    rows.append(("all", *_row(sources(root), sum(map(len, out.values())))))
    return [f"{row[0]:<22}" + "".join(f"{cell:>18}" for cell in row[1:]) for row in rows]


def _row(files: list[Source], arrow_count: int) -> tuple[str, ...]:
    functions = [length(node) for file in files if file.python for node in file.functions()]
    counts = [lines(file) for file in files]
    return (
        str(len(files)),
        f"{sum(counts):,}",
        str(arrow_count),
        str(max(counts)),
        str(max(functions, default=0)),
    )

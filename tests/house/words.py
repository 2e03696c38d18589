"""One word per thing: names that stay at home, words that are not said, texts that are finished."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from house.source import PACKAGE, Source, docstrings, pages, python_sources, sources

REGISTRY = "schedules/__init__.py"

OTHER_WORDS = {
    "rank": "device",
    "ranks": "devices",
    "worker": "device",
    "workers": "devices",
    "segment": "slice",
    "segments": "slices",
    "virtual_stage": "stage",
    "chunk": "stage or slice (chunks is a count)",
    "micro_batch": "mb or microbatch",
    "micro_batches": "microbatches",
    "ubatch": "mb",
    "mubatch": "mb",
    "num": "the plain plural, as in devices",
}
"""Words that the field uses for several things, and what is said here instead."""

FOREIGN_TONGUE = (
    "arch/lora.py",
    "arch/mesh_shape.py",
    "arch/cell_shape.py",
    "arch/parameter_layout.py",
    "bench/cells.py",
    "bench/policies.py",
    "bench/run.py",
    "cli/bench.py",
    "cli/launch.py",
    "cli/profile.py",
    "cli/train.py",
    "cost/cell_workload.py",
    "cost/collectives.py",
    "cost/copies.py",
    "cost/mesh_links.py",
    "cluster/cluster.py",
    "cluster/collective_times.py",
    "cluster/measured.py",
    "cluster/profile_file.py",
    "cost/rank_attention.py",
    "cost/rank_share.py",
    "cost/rank_temporary.py",
    "estimate/layout.py",
    "estimate/price.py",
    "estimate/step_schedule.py",
    "files/torch_csv.py",
    "plan/cell_memory.py",
)
"""Files that translate another system's language, or count or start ranks, and have to speak it;
LoRA has ranks of matrices."""

UNFINISHED = re.compile(
    r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b"
    r"|\b(?:for now|not yet (?:implemented|supported)|(?:added|done|filled in) later"
    r"|later (?:work|version)|to be (?:done|implemented|written)|placeholder(?!=))\b",
    re.IGNORECASE,
)
ELSEWHERE = re.compile(
    r"(?<![\w.~-])/(?:work|root|tmp|home|opt|Users|mnt)\b(?:/|$)|\bdesign\.md\b"
    r"|\bdesign,? section \d|\bspec sheet\b",
    re.IGNORECASE,
)
"""Paths of one machine, and texts that are not in the repository."""

_TEXTS = (".py", ".js", ".css", ".html", ".md", ".toml", ".txt", ".yml", "")


def stray_names(root: Path, owners: Mapping[str, str]) -> list[str]:
    """Schedules known by name outside their own file; `owners` is name -> path of that file."""
    spelled = {form: name for name in owners for form in (name, re.sub(r"\W", "_", name))}
    forms = "|".join(map(re.escape, sorted(spelled, key=len, reverse=True)))
    named = re.compile(rf"(?<![\w-])(?:{forms})(?![\w-])")
    return [
        f"src/{PACKAGE}/{source.path}:{line}: names the schedule {name!r}, "
        f"which only {owners[name]} and the registry list may do"
        for source in sources(root)
        if source.path != REGISTRY
        for line, words in _spoken(source)
        for name in sorted({spelled[form] for form in named.findall(words)})
        if source.path != owners[name]
    ]


def _spoken(source: Source) -> Iterator[tuple[int, str]]:
    """Line and text of every string and identifier; prose in docstrings may tell of papers."""
    if not source.python:
        yield from enumerate(source.text.splitlines(), 1)
        return
    prose = docstrings(source.tree)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
            yield node.lineno, node.value
        yield from identifiers(node)


def identifiers(node: ast.AST) -> list[tuple[int, str]]:
    """Identifiers that a syntax node uses or binds, with their lines."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return [(node.lineno, name)]
        case ast.ImportFrom():
            return [(node.lineno, (node.module or "").replace(".", " "))]
        case ast.alias():
            return [(node.lineno, name) for name in (node.name, node.asname or "")]
        case ast.keyword(arg=str(name)):
            return [(node.lineno, name)]
        case _:
            return _bound(node)


def _bound(node: ast.AST) -> list[tuple[int, str]]:
    """Identifiers that a syntax node brings into the house."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            return [(node.lineno, name)]
        case ast.Name(id=name, ctx=ast.Store()):
            return [(node.lineno, name)]
        case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
            return [(node.lineno, name)]
        case _:
            return []


def other_words(root: Path) -> list[str]:
    """Identifiers made of a word that has another name here."""
    return [
        f"src/{PACKAGE}/{source.path}:{line}: {name} says {word!r}, here it is {OTHER_WORDS[word]}"
        for source in python_sources(root)
        if not source.runs_torch and source.path not in FOREIGN_TONGUE
        for line, name in _names(source)
        for word in OTHER_WORDS
        if f"_{word}_" in f"_{_snake(name)}_"
    ]


def _names(source: Source) -> Iterator[tuple[int, str]]:
    yield 1, source.path.removesuffix(".py").split("/")[-1]
    for node in ast.walk(source.tree):
        yield from _bound(node)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """Path and content of every text of the project that people write."""
    folders = ("src", "scripts", "tests", ".ci")
    written = [path for folder in folders for path in (root / folder).rglob("*")]
    written += [*pages(root), *root.glob("*.toml"), *root.glob("Makefile"), *root.glob("*.txt")]
    for path in sorted(written):
        parts = path.relative_to(root).parts
        skipped = any(part == "__pycache__" or part.endswith(".egg-info") for part in parts)
        if path.is_file() and path.suffix in _TEXTS and not skipped and "house" not in parts:
            yield "/".join(parts), path.read_text()


def unfinished(root: Path) -> list[str]:
    """Words that promise work instead of doing it."""
    return _matches(root, UNFINISHED, "is a promise; do it or leave it out")


def elsewhere(root: Path) -> list[str]:
    """Words that point outside the repository."""
    return _matches(root, ELSEWHERE, "is not in the repository")


def _matches(root: Path, pattern: re.Pattern[str], verdict: str) -> list[str]:
    return [
        f"{path}:{number}: {found[0]!r} {verdict}"
        for path, text in texts(root)
        for number, line in enumerate(text.splitlines(), 1)
        for found in pattern.finditer(line)
    ]


def not_ascii(root: Path) -> list[str]:
    """Characters in code that not every terminal and editor shows; write them as escapes."""
    return [
        f"src/{PACKAGE}/{source.path}:{number}: {line.strip()[:60]!a}"
        for source in sources(root)
        for number, line in enumerate(source.text.splitlines(), 1)
        if not line.isascii()
    ]


def stubs(root: Path) -> list[str]:
    """Functions that do nothing; only a protocol or a command's help may describe without doing."""
    return [
        f"src/{PACKAGE}/{source.path}:{function.lineno}: {function.name} does nothing"
        for source in python_sources(root)
        for function in source.functions()
        if not any(_acts(statement) for statement in function.body)
        and function not in _described(source)
        and function.name not in source.commands
    ]


def _acts(statement: ast.stmt) -> bool:
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return not (constant or isinstance(statement, ast.Pass))


def _described(source: Source) -> list[ast.stmt]:
    """Methods of protocols."""
    return [
        member
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).startswith("Protocol") for base in node.bases)
        for member in node.body
    ]

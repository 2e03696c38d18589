"""Proves one schedule alone, in under a minute: `python scripts/check_schedule.py NAME`.

The whole suite asks every schedule the same questions. This asks only one: its files, the rules of
the house, format, lint and types, then its cases, claims, drawing, page, golden lanes, random
shapes and mutants. What other schedules have to do with it (the table of the README, the gallery)
is left to the suite.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import pytest

from penstock.errors import PenstockError
from penstock.schedules import Spec, find

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))
words, sizes = import_module("house.words"), import_module("house.sizes")

RULES = (
    words.not_ascii,
    words.other_words,
    words.unfinished,
    words.elsewhere,
    words.stubs,
    sizes.long_files,
    sizes.long_functions,
    sizes.wide_functions,
)
TESTS = ("tests/every_schedule", "tests/trust/test_small_world.py", "tests/trust/test_requests.py")


def files_of(spec: Spec) -> dict[str, Path]:
    """What belongs to a schedule, by what it is."""
    module = spec.generate.__module__
    folder = "/".join(module.split(".")[1:-1])
    stem = module.split(".")[-1]
    return {
        "file": Path(f"src/{module.replace('.', '/')}.py"),
        "test": Path(f"tests/{folder}/test_{stem}.py"),
        "page": Path(f"docs/schedules/{spec.name}.md"),
        "golden lanes": Path(f"tests/golden/{spec.name}.txt"),
    }


def missing_files(spec: Spec) -> list[str]:
    """What is not there; golden lanes and the table are written by `make golden`."""
    found = [f"{path} is missing" for path in files_of(spec).values() if not (ROOT / path).exists()]
    if f"docs/schedules/{spec.name}.md" not in (ROOT / "README.md").read_text():
        found.append("README.md does not list it: make golden")
    return found


def broken_rules(spec: Spec) -> list[str]:
    """What the rules of the house say about these files alone."""
    with TemporaryDirectory() as folder:
        for path in files_of(spec).values():
            if (ROOT / path).exists():
                (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, Path(folder) / path)
        return [complaint for rule in RULES for complaint in rule(Path(folder))]


class Only:
    """Leaves out the tests of other schedules, and those that are about none."""

    def __init__(self, spec: Spec) -> None:
        self.wanted = {spec.name, spec.generate.__module__}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self._asks(item)]

    def _asks(self, item: pytest.Item) -> bool:
        if item.path.is_relative_to(ROOT / "tests/schedules"):
            return True
        given = getattr(item, "callspec", None)
        values = given.params.values() if given else ()
        return any(getattr(value, "name", value) in self.wanted for value in map(_plain, values))


def _plain(value: object) -> object:
    """A parameter that can be looked up in a set: a record, a name, or nothing of interest."""
    return value if isinstance(value, Spec | str) else None


def run_tests(spec: Spec) -> list[str]:
    """What pytest says, on its own output."""
    own = files_of(spec)["test"]
    chosen = [*TESTS, *([str(own)] if (ROOT / own).exists() else [])]
    status = pytest.main([*chosen, "-q", "-p", "no:cacheprovider"], plugins=[Only(spec)])
    return [] if status == 0 else ["some tests failed"]


def command(*arguments: str) -> subprocess.Popen[str]:
    """A tool under way: the type checker runs beside the tests."""
    return subprocess.Popen(
        [sys.executable, "-m", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def answer(process: subprocess.Popen[str]) -> list[str]:
    """What a tool complains about."""
    printed, _ = process.communicate()
    return printed.splitlines() if process.returncode else []


def steps(spec: Spec) -> Iterator[tuple[str, list[str]]]:
    """What was asked, and what does not agree."""
    paths = [str(path) for path in files_of(spec).values() if path.suffix == ".py"]
    there = [path for path in paths if (ROOT / path).exists()]
    types = command("mypy", there[0])
    yield "files", missing_files(spec)
    yield "house rules", broken_rules(spec)
    yield "format", answer(command("ruff", "format", "--check", *there))
    yield "lint", answer(command("ruff", "check", "--output-format", "concise", *there))
    yield "tests", run_tests(spec)
    yield "types", answer(types)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.exit("give one name: make check-schedule NAME=my-schedule")
    try:
        spec = find(arguments[0])
    except PenstockError as error:
        sys.exit(f"{error.message}\nhint: {error.hint}")
    wrong, start = False, perf_counter()
    for step, complaints in steps(spec):
        print(f"== {step}: {'; '.join(complaints[:1]) or 'good'}")
        print("".join(f"   {line}\n" for line in complaints[1:]), end="")
        wrong = wrong or bool(complaints)
    print(f"== {spec.name}: {perf_counter() - start:.0f} s")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The schedule that CONTRIBUTING.md adds can be added: its three steps work as they are written.

They are followed in a copy of the project, and the tests that walk the registry are run there.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from house.registry import list_and_folder, pages_and_golden
from house.source import none_of
from house.words import not_ascii, other_words, stray_names, unfinished

HOUSE = Path(__file__).resolve().parents[2]
NAME, MODULE = "one-by-one", "one_by_one"
COPIED = (
    "src/penstock",
    "scripts",
    "tests/every_schedule",
    "tests/schedules",
    "tests/golden",
    "docs/schedules",
)


def block(page: str, step: str) -> str:
    """The fenced block that follows a step's bold heading."""
    found = re.search(rf"\*\*{re.escape(step)}\*\*.*?^(```+)\w+\n(.*?)^\1$", page, re.S | re.M)
    assert found, f"CONTRIBUTING.md has no block for {step!r}"
    return found[2]


def python(root: Path, *arguments: str) -> str:
    """What Python prints when it runs in the copy."""
    run = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project to which the example has been added by the book."""
    page = (HOUSE / "CONTRIBUTING.md").read_text()
    root = tmp_path_factory.mktemp("extended")
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in COPIED:
        shutil.copytree(HOUSE / folder, root / folder, ignore=ignore)
    shutil.copy(HOUSE / "pyproject.toml", root)
    schedules = root / "src/penstock/schedules"
    (schedules / f"{MODULE}.py").write_text(block(page, "1. The file"))
    head, mark, tail = (schedules / "__init__.py").read_text().partition("MODULES = (\n")
    (schedules / "__init__.py").write_text(head + mark + block(page, "2. The line") + tail)
    (root / f"docs/schedules/{NAME}.md").write_text(block(page, "3. The page"))
    python(root, "scripts/write_golden.py")
    python(root, "scripts/write_schedule_pages.py")
    return root


def test_the_example_passes_the_tests_of_every_schedule(extended: Path) -> None:
    printed = python(extended, "-m", "pytest", "tests/every_schedule", "-k", f"{NAME} or {MODULE}")
    passed = re.search(r"^(\.+) +\[100%\]", printed, re.M)
    assert passed, printed
    assert len(passed[1]) >= 10


def test_a_wrong_claim_in_the_example_would_not_pass(extended: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(extended, tmp_path / "copy")
    file = copy / f"src/penstock/schedules/{MODULE}.py"
    file.write_text(file.read_text().replace("c.m * c.p * c.step", "c.m * c.p * c.step + 1"))
    with pytest.raises(AssertionError, match="test_every_claim_equals_the_simulation"):
        python(copy, "-m", "pytest", "tests/every_schedule/test_claims.py", "-k", NAME)


@pytest.mark.parametrize("verb", ["check", "show", "simulate"])
def test_the_commands_of_the_example_work(extended: Path, verb: str) -> None:
    python(extended, "-m", "penstock", verb, NAME, "-p", "4", "-m", "8")


def test_the_example_is_listed(extended: Path) -> None:
    assert NAME in python(extended, "-m", "penstock", "list")


def test_the_example_keeps_the_rules_of_the_house(extended: Path) -> None:
    none_of(list_and_folder(extended))
    none_of(stray_names(extended, {NAME: f"schedules/{MODULE}.py"}))
    for complaints in (pages_and_golden(extended, [NAME]), *_words(extended)):
        none_of([complaint for complaint in complaints if NAME in complaint or MODULE in complaint])


def _words(root: Path) -> list[list[str]]:
    return [rule(root) for rule in (not_ascii, other_words, unfinished)]


def test_the_example_is_formatted_and_linted(extended: Path) -> None:
    file = f"src/penstock/schedules/{MODULE}.py"
    python(extended, "-m", "ruff", "format", "--check", file)
    python(extended, "-m", "ruff", "check", file)

"""The schedules that CONTRIBUTING.md adds can be added: its steps work as they are written.

They are followed in a copy of the project, where each example is proven alone as its author would.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from house.registry import files_and_order, pages_and_golden
from house.source import none_of
from house.words import stray_names
from new_schedule import STEPS, block

pytestmark = pytest.mark.long

HOUSE = Path(__file__).resolve().parents[2]
FIRST, SECOND = "one-by-one", "wave-1f1b"
MODULES = {FIRST: "one_by_one", SECOND: "wave_1f1b"}
COPIED = (
    "src/penstock",
    "scripts",
    "tests/every_schedule",
    "tests/schedules",
    "tests/golden",
    "tests/house",
    "tests/trust",
    "docs/schedules",
)
FILES = (
    "pyproject.toml",
    "CONTRIBUTING.md",
    "README.md",
    "tests/clock.py",
    "tests/conftest.py",
    "tests/loops.py",
    "tests/tiers.py",
)


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in the copy."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
    )


def python(root: Path, *arguments: str) -> str:
    """What Python prints when it runs in the copy, and is content."""
    answer = run(root, *arguments)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def second_page(first: str) -> str:
    """The page that the script starts with, changed to what the second example is."""
    page = first.replace("one microbatch at a time", "the ready backward first, on a wave")
    page = page.replace("GPipe, arXiv:1811.06965, figure 2b", "Hanayo, arXiv:2308.15762")
    return page.replace(f"show {SECOND} -p 2", f"show {SECOND} -v 2 -p 2")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project to which the examples have been added by the book."""
    root = tmp_path_factory.mktemp("extended")
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in COPIED:
        shutil.copytree(HOUSE / folder, root / folder, ignore=ignore)
    for name in FILES:
        shutil.copy(HOUSE / name, root / name)
    known = HOUSE / ".mypy_cache"  # of `make check`: without it the types of all libraries are read
    if known.exists():
        shutil.copytree(known, root / known.name)
    for name in MODULES:
        python(root, "scripts/new_schedule.py", name)
    text = block((root / "CONTRIBUTING.md").read_text(), "A file with every part")
    (root / f"src/penstock/schedules/{MODULES[SECOND]}.py").write_text(text)
    (root / f"tests/schedules/test_{MODULES[SECOND]}.py").write_text("")
    page = root / f"docs/schedules/{SECOND}.md"
    page.write_text(second_page(page.read_text()))
    with (root / "README.md").open("a") as readme:
        readme.writelines(f"docs/schedules/{name}.md\n" for name in MODULES)
    python(root, "scripts/write_golden.py")
    python(root, "scripts/write_schedule_pages.py")
    return root


@pytest.mark.matrix
def test_a_new_schedule_starts_as_the_first_example(extended: Path) -> None:
    page = (HOUSE / "CONTRIBUTING.md").read_text()
    for step in ("1. The file", "3. The test"):
        path = STEPS[step].format(name=FIRST, module=MODULES[FIRST])
        assert (extended / path).read_text() == block(page, step)


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["One", "1f1b-more", "a_b", "", "gpipe", FIRST])
def test_a_name_that_cannot_be_is_refused(extended: Path, name: str) -> None:
    answer = run(extended, "scripts/new_schedule.py", name)
    assert answer.returncode == 1
    assert re.search(r"is no name: give|exists already: give another name", answer.stderr)


@pytest.mark.matrix
@pytest.mark.parametrize("name", MODULES)
def test_each_example_is_proven_alone(extended: Path, name: str) -> None:
    printed = python(extended, "scripts/check_schedule.py", name)
    steps = ("files", "house rules", "format", "lint", "tests", "types")
    assert re.findall(r"^== (.*): good$", printed, re.M) == list(steps)
    passed = "".join(re.findall(r"^(\.+) +\[ *\d+%\]$", printed, re.M))
    assert len(passed) >= 20, printed  # cases, shapes, mutants and mistakes are loops inside
    mutants = re.search(r"^total +(\d+) +(\d+)", printed, re.M)
    assert mutants, printed
    assert int(mutants[1]) == int(mutants[2]) >= 500, printed


WRONG = {
    "a claim": ("c.m * c.p * c.step", "c.m * c.p * c.step + 1", "tests: some tests failed"),
    "a letter": ("(c.act,) * c.p", "(c.acts,) * c.p", "types: .*has no attribute"),
}
"""What may go wrong, how it is seeded into the first example, and what is said."""


@pytest.mark.matrix
@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_in_the_example_is_found(extended: Path, tmp_path: Path, mistake: str) -> None:
    right, wrong, said = WRONG[mistake]
    copy = shutil.copytree(extended, tmp_path / "copy")
    file = copy / f"src/penstock/schedules/{MODULES[FIRST]}.py"
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    answer = run(copy, "scripts/check_schedule.py", FIRST)
    assert answer.returncode == 1
    assert re.search(said, answer.stdout + answer.stderr), answer.stdout + answer.stderr


@pytest.mark.matrix
@pytest.mark.parametrize("verb", ["check", "show", "simulate"])
def test_the_commands_of_the_example_work(extended: Path, verb: str) -> None:
    python(extended, "-m", "penstock", verb, FIRST, "-p", "4", "-m", "8")


@pytest.mark.matrix
def test_the_examples_are_listed_behind_the_others(extended: Path) -> None:
    listed = python(extended, "-m", "penstock", "list")
    assert listed.index("gpipe") < listed.index(FIRST) < listed.index(SECOND)


@pytest.mark.matrix
def test_the_examples_keep_the_rules_of_the_house(extended: Path) -> None:
    none_of(files_and_order(extended))
    none_of(stray_names(extended, {n: f"schedules/{m}.py" for n, m in MODULES.items()}))
    complaints = pages_and_golden(extended, MODULES)
    none_of([complaint for complaint in complaints if "is missing" in complaint])

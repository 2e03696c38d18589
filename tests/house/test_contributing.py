"""The schedule that CONTRIBUTING.md adds can be added: its three steps work as they are written."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from house.registry import list_and_folder
from house.source import none_of
from house.words import not_ascii, other_words, stray_names, unfinished

NAME, MODULE = "one-by-one", "one_by_one"

PROVE_AND_PRICE = f"""
from penstock.check import require
from penstock.schedules import registry
from penstock.sim import simulate

spec = registry()["{NAME}"]
for case in spec.cases:
    schedule = spec.build(case)
    require(schedule)
    timeline = simulate(schedule)
    for claim in spec.claims:
        found = getattr(timeline, claim.quantity)
        assert found == claim.value(case), (str(case), claim.formula, found)
    print(case)
"""


def block(page: str, step: str) -> str:
    """The fenced block that follows a step's bold heading."""
    found = re.search(rf"\*\*{re.escape(step)}\*\*.*?^```\w+\n(.*?)^```", page, re.S | re.M)
    assert found, f"CONTRIBUTING.md has no block for {step!r}"
    return found[1]


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package to which the example has been added by the book."""
    house = Path(__file__).resolve().parents[2]
    page = (house / "CONTRIBUTING.md").read_text()
    root = tmp_path_factory.mktemp("extended")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(house / "src/penstock", root / "src/penstock", ignore=ignore)
    folder = root / "src/penstock/schedules"
    (folder / f"{MODULE}.py").write_text(block(page, "1. The file"))
    registry = folder / "__init__.py"
    line = block(page, "2. The line")
    registry.write_text(
        re.sub(r"^MODULES = \(\n", rf"\g<0>{line}", registry.read_text(), flags=re.M)
    )
    (root / "docs/schedules").mkdir(parents=True)
    (root / f"docs/schedules/{NAME}.md").write_text(block(page, "3. The page"))
    return root


def python(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_example_is_proven_and_its_claims_hold(extended: Path) -> None:
    run = python(extended, "-c", PROVE_AND_PRICE)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 3


@pytest.mark.parametrize("verb", ["check", "show", "simulate"])
def test_the_commands_of_the_example_work(extended: Path, verb: str) -> None:
    run = python(extended, "-m", "penstock", verb, NAME, "-p", "4", "-m", "8")
    assert run.returncode == 0, run.stderr


def test_the_example_is_listed(extended: Path) -> None:
    assert NAME in python(extended, "-m", "penstock", "list").stdout


def test_the_picture_in_the_example_is_the_lanes(extended: Path) -> None:
    code = (
        f"from penstock.schedules import build; print(*build({NAME!r}, devices=2, microbatches=2)"
    )
    file = (extended / f"src/penstock/schedules/{MODULE}.py").read_text()
    for device in (0, 1):
        drawn = re.search(rf"device {device} +(.*)", file)
        assert drawn
        lane = python(extended, "-c", f"{code}.lane({device}))").stdout
        assert re.findall(r"[A-Z]\d+", lane) == drawn[1].split()


def test_the_example_keeps_the_rules_of_the_house(extended: Path) -> None:
    none_of(list_and_folder(extended))
    none_of(stray_names(extended, {NAME: f"schedules/{MODULE}.py"}))
    for rule in (not_ascii, other_words, unfinished):
        none_of([found for found in rule(extended) if MODULE in found])


def test_the_example_is_formatted_and_linted(extended: Path) -> None:
    file = extended / f"src/penstock/schedules/{MODULE}.py"
    config = Path(__file__).resolve().parents[2] / "pyproject.toml"
    for verb in (["format", "--check"], ["check"]):
        run = python(extended, "-m", "ruff", *verb, "--config", str(config), str(file))
        assert run.returncode == 0, run.stdout

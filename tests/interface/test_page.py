"""The page about the Python interface: its sessions run, its names are those that there are."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from write_python_reference import METHODS, PAGE, ROOT, rewritten

TEXT = PAGE.read_text()
ANEW = "python scripts/write_python_reference.py writes it anew"


@pytest.mark.torch
def test_the_page_has_the_signatures_and_programs_as_they_are() -> None:
    assert rewritten(TEXT) == TEXT, ANEW


def test_every_session_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted > 20
    assert result.failed == 0
    assert {path.name for path in tmp_path.iterdir()} == {"mine.txt", "picture.svg"}


def test_every_public_name_is_on_the_page() -> None:
    named = set(re.findall(r"\b\w+\b", TEXT))
    assert [name for name in penstock.__all__ if name not in named] == []
    for name in METHODS:
        assert re.search(rf"<!-- signatures of [\w, ]*\b{name}\b", TEXT), name


def test_the_attributes_in_the_tables_are_there() -> None:
    schedule = penstock.build("1f1b", devices=2, microbatches=2)
    found = {
        "Schedule": schedule,
        "Report": penstock.check(schedule),
        "Timeline": penstock.simulate(schedule),
    }
    for name, value in found.items():
        table = TEXT.split(f"| attribute of a `{name}` | |")[1].split("\n\n")[0]
        first_cells = "".join(line.split("|")[1] for line in table.splitlines()[2:])
        attributes = re.findall(r"`(\w+)`", first_cells)
        assert attributes
        assert [each for each in attributes if not hasattr(value, each)] == []


def test_every_error_of_the_tree_is_in_the_table() -> None:
    table = TEXT.split("| error | means |")[1].split("\n\n")[0]
    named = re.findall(r"^\| `(\w+)`", table, re.M)
    assert {*named, "PenstockError"} == {name for name in penstock.__all__ if "Error" in name}


def test_the_numbers_are_those_of_the_code() -> None:
    from penstock.interface.notebook import OPS_DRAWN
    from penstock.interface.picture import LINES_SHOWN

    assert f"Above {OPS_DRAWN} ops" in TEXT
    assert f"at most {LINES_SHOWN}\nlines" in TEXT


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.processes
def test_the_program_that_compares_schedules_runs(tmp_path: Path) -> None:
    script = str(ROOT / "examples/compare_schedules.py")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["1f1b", "zb-h1", "seq1f1b"]
    assert "<html" in (tmp_path / "compared.html").read_text()


@pytest.mark.torch
@pytest.mark.processes
@pytest.mark.matrix
def test_the_program_with_modules_of_its_own_trains_under_torchrun(tmp_path: Path) -> None:
    command = re.search(r"^torchrun (.*)$", TEXT, re.M)
    assert command is not None
    *flags, script = command[1].split()
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *flags, str(ROOT / script)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    *lines, verdict = [line for line in done.stdout.splitlines() if "loss" in line]
    assert verdict.startswith("zb-h1: equal to one process")
    assert [line.partition(":")[0] for line in lines] == [
        *(f"step {step}" for step in range(0, 40, 10)),
        "held out",
    ]
    losses = [float(line.split()[-1]) for line in lines]
    assert losses[0] > 4  # as good as guessing one of 64 words
    assert losses[-1] < losses[0] / 2

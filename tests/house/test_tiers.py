"""Tiers are what their markers say: no test starts a process unseen, and none is in no tier."""

import multiprocessing
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tiers import first_cases, mark_processes, without_processes

STARTS: dict[str, Callable[[], object]] = {
    "subprocess": lambda: subprocess.run(["true"]),
    "spawn": lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
    "forkserver": lambda: multiprocessing.get_context("forkserver").Process(target=print).start(),
    "fork": lambda: os.fork(),
    "posix_spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "system": lambda: os.system("true"),
}


@pytest.mark.parametrize("way", STARTS)
def test_a_test_without_the_marker_cannot_start_a_process(
    way: str, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(pytest.fail.Exception, match="marker `processes`") as caught:
        STARTS[way]()
    assert request.node.nodeid in str(caught.value)


@pytest.mark.processes
def test_a_test_with_the_marker_can() -> None:
    assert subprocess.run(["true"]).returncode == 0
    with without_processes("it"), pytest.raises(pytest.fail.Exception, match="it starts"):
        subprocess.run(["true"])
    assert subprocess.run(["true"]).returncode == 0


class Item:
    """As much of a collected test as the tiers look at."""

    def __init__(self, nodeid: str, *fixtures: str) -> None:
        self.nodeid, self.fixturenames, self.markers = nodeid, fixtures, [""]

    def add_marker(self, name: str) -> None:
        self.markers.append(name)


def test_folders_and_fixtures_that_start_processes_mark_their_tests() -> None:
    items = [
        Item("tests/train/runs/test_kills.py::test_one"),
        Item("tests/core/test_ops.py::test_two", "tmp_path"),
        Item("tests/model/test_three.py::test_three", "ranks"),
    ]
    mark_processes(items)  # type: ignore[arg-type]
    assert [item.markers[-1] for item in items] == ["processes", "", "processes"]


def test_of_a_file_about_one_schedule_each_test_is_taken_once() -> None:
    names = ("core/test_ops.py::test_it", "schedules/test_it.py::test_it")
    items = [Item(f"tests/{name}[{index}]") for name in names for index in (0, 1)]
    chosen = first_cases(items)  # type: ignore[arg-type]
    assert chosen == items[:3]


def test_what_leaves_the_tests_of_every_day_is_in_the_matrix_and_both_are_run(house: Path) -> None:
    lines = (house / "Makefile").read_text().replace("\\\n", "").splitlines()
    chosen = {
        target: re.findall(r'-m (?:"([^"]+)"|(\w+)) ', recipe)
        for target, recipe in zip((line.split(":")[0] for line in lines), lines[1:])
        if target in ("quick", "test", "matrix", "exhaustive")
    }
    assert chosen == {
        "quick": [("", "pytest"), ("not processes and not long and not matrix", "")],
        "test": [("", "pytest"), ("not matrix", "")],
        "matrix": [("", "pytest"), ("matrix and not exhaustive", "")],
        "exhaustive": [("", "pytest"), ("", "exhaustive")],
    }
    ran = re.findall(r"^make (\w+)$", (house / ".ci/run").read_text(), re.M)
    assert ran == ["check", "test", "matrix"]

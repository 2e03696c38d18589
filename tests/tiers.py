"""Tiers of tests, from quick to large.

`make quick` takes the first case of each schedule, starts no process and leaves out what takes more
than a second or two all the same; `make test` takes all but the large matrices; `make matrix` takes
those. What a test needs is told by its markers, and a test that starts a process without the marker
fails in every tier, so that the quick one stays quick.
"""

import multiprocessing.process
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest
from hypothesis import settings

STARTING_FIXTURES = frozenset(
    {"browser", "crew", "crews", "extended", "nodes", "pair", "ranks", "setting", "verifier"}
)
"""Fixtures that start processes: a test that asks for one of them is marked by that."""

STARTING_FOLDERS = ("run/faults", "run/launch", "train/runs")
"""Folders under `tests/` whose subject is processes: every test in them is marked."""

ONE_SCHEDULE = "tests/schedules/"
"""Files of this folder are about one schedule, so what their tests are called with is a case."""

QUICK_EXAMPLES = 3
"""Random examples of a test in the quick tier, however many it takes otherwise."""

SETTINGS = "_hypothesis_internal_use_settings"
"""Where hypothesis keeps what a test has asked for; a profile changes only what it has not."""

STARTS: tuple[tuple[Any, str], ...] = (
    (subprocess.Popen, "__init__"),
    (multiprocessing.process.BaseProcess, "start"),
    (os, "fork"),
    (os, "forkpty"),
    (os, "posix_spawn"),
    (os, "posix_spawnp"),
    (os, "system"),
)


def mark_processes(items: list[pytest.Item]) -> None:
    """Mark the tests of the folders that start processes, and of the fixtures that do."""
    folders = tuple(f"tests/{folder}/" for folder in STARTING_FOLDERS)
    for item in items:
        asked = STARTING_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if asked or item.nodeid.startswith(folders):
            item.add_marker("processes")


@contextmanager
def without_processes(test: str) -> Iterator[None]:
    """Fail where a process is started, by whatever way."""

    def refuse(*_: object, **__: object) -> NoReturn:
        pytest.fail(f"{test} starts a process without the marker `processes`")

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in STARTS:
            patch.setattr(owner, name, refuse)
        yield


def few_examples(items: list[pytest.Item]) -> None:
    """Let random tests take the few examples of the quick tier, also those that ask for more."""
    for test in {getattr(item, "obj", None) for item in items}:
        own = getattr(test, SETTINGS, None)
        if own is not None:
            few = min(own.max_examples, QUICK_EXAMPLES)
            setattr(test, SETTINGS, settings(own, max_examples=few))


def first_cases(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of the tests about one schedule each one once, with the first of its cases."""
    seen: set[str] = set()
    return [item for item in items if not _is_later_case(item.nodeid.split("[")[0], seen)]


def _is_later_case(test: str, seen: set[str]) -> bool:
    later = test.startswith(ONE_SCHEDULE) and test in seen
    seen.add(test)
    return later

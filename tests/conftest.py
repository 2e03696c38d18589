"""What every test finds as it should be, and the tiers."""

import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest
from hypothesis import settings

from tiers import few_examples, first_cases, mark_processes, without_processes

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Tensors here are so small that the threads of torch, which reads this once, would take more time
to wait for each other than to work; and the cores have other tests to run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--first-case",
        action="store_true",
        help="of each schedule take the first case only; part of `make quick`",
    )
    parser.addoption(
        "--fuzz", type=int, default=0, metavar="INPUTS", help="inputs of each format in tests/fuzz"
    )


def pytest_configure() -> None:
    settings.register_profile("any machine", deadline=None)  # others may keep it busy
    settings.load_profile("any machine")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Nothing that is made while tests are collected goes away, so nobody need look for it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_processes(items)
    if config.getoption("--first-case"):
        chosen = first_cases(items)
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen
        few_examples(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """The whole of a test, with its fixtures: those of a session start with the first that asks."""
    if item.get_closest_marker("processes"):
        return (yield)
    with without_processes(item.nodeid):
        return (yield)


@pytest.fixture(scope="session")
def first_case(pytestconfig: pytest.Config) -> bool:
    """Whether a loop over the cases of a schedule ends after the first."""
    return bool(pytestconfig.getoption("--first-case"))


@pytest.fixture(scope="session")
def crews() -> Iterator[Callable[[int], "Crew"]]:  # noqa: F821 - torch is only there where needed
    """A crew of each size for all tests, started when it is first needed: starting ranks takes
    longer than most jobs."""
    from forked_crew import RestingCrew

    with ExitStack() as stack:
        yield cache(lambda ranks: stack.enter_context(RestingCrew(ranks)))


@pytest.fixture(scope="session")
def ranks(crews: Callable[[int], "Crew"]) -> "Crew":  # noqa: F821
    return crews(4)


@pytest.fixture(scope="session")
def pair(crews: Callable[[int], "Crew"]) -> "Crew":  # noqa: F821
    return crews(2)


@pytest.fixture(autouse=True)
def products_as_usual() -> None:
    """On a CPU without products in 16 bits, the first one makes torch take other kernels for all
    that follow in the process, which changes bits: each test begins with the usual ones."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch._C._set_mkldnn_enabled(True)  # its public form warns about Intel's GPUs

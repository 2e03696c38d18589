"""Hot loops: plain and compiled give the same, also where a loop is written in pieces."""

import sys
from typing import Any

import numpy as np
import pytest

from penstock.core import kernel as kernel_module
from penstock.core.kernel import COMPILE_ABOVE, compile_small_work, kernel, part


@part
def doubled(value: int) -> int:
    return value * 2


@part
def raised(value: int) -> int:
    return int(doubled(value)) + 1


@kernel
def summed(values: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> int:
    total = 0
    for value in values:
        total += raised(value)
    return total


def test_parts_are_compiled_with_the_kernel_that_calls_them() -> None:
    values = np.arange(5)
    assert summed(0, values) == summed(COMPILE_ABOVE + 1, values) == 25
    assert raised(3) == 7


def test_without_a_compiler_loops_run_as_they_are_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    kernel_module._say_slow.cache_clear()
    for _ in range(2):
        again = kernel(summed.plain)
        assert again(0, np.arange(5)) == 25
        assert again(COMPILE_ABOVE + 1, np.arange(5)) == 25
        assert again.compiled is summed.plain
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == printed.err.count("numba is not installed") == 1


def test_small_work_without_a_compiler_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    kernel_module._say_slow.cache_clear()
    assert kernel(summed.plain)(COMPILE_ABOVE, np.arange(5)) == 25
    assert capsys.readouterr().err == ""


def test_another_part_makes_another_kernel_for_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache asks for a kernel by its name; it does not look into the files of its parts."""
    before = kernel(summed.plain).compiled
    monkeypatch.setitem(raised.plain.__globals__, "doubled", part(lambda value: value * 3))
    after = kernel(summed.plain).compiled
    assert before.py_func.__qualname__ != after.py_func.__qualname__
    assert (before(np.arange(5)), summed.compiled(np.arange(5))) == (25, 25)


def test_many_pieces_of_small_work_run_compiled() -> None:
    counted = kernel(_total)
    counted.__dict__["compiled"] = lambda values: -1
    assert counted(1, np.arange(3)) == 3
    with compile_small_work():
        assert counted(1, np.arange(3)) == -1
    assert counted(1, np.arange(3)) == 3


def _total(values: Any) -> int:
    return int(sum(values))

"""One source for the hot loops: compiled where it pays, plain Python where it does not.

A loop over a million ops must be compiled, but a command that looks at forty must not wait for the
compiler to load. So each hot loop is one function over numpy arrays, marked `@kernel`; it runs as
it is on small inputs and through numba on large ones. Both run the same lines. A loop too long for
one function is written in pieces, marked `@part`, which are compiled with the kernel that calls
them. A part may serve kernels of several files.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property, update_wrapper
from hashlib import sha256
from types import FunctionType
from typing import Any

from penstock.terminal import say_error

COMPILE_ABOVE = 20_000
"""Ops from which compiled code wins over the half second that loading numba takes."""


class KernelPart:
    """A piece of a kernel: a function that kernels and other parts call.

    A call counts references of every array it passes on, so a part should loop over many items.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.plain = function
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return self.plain(*arguments)

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        return _compile(self.plain)


class Kernel:
    """A loop that picks plain or compiled execution by the size of its work."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.plain = function
        update_wrapper(self, function)

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        return _compile(self.plain)

    def __call__(self, size: int, *arguments: Any) -> Any:
        """Run over `arguments`; `size` is the number of ops they stand for."""
        run = self.compiled if size > COMPILE_ABOVE or _many.get() else self.plain
        return run(*arguments)


_many: ContextVar[bool] = ContextVar("many small pieces of work", default=False)


@contextmanager
def compile_small_work() -> Iterator[None]:
    """Run compiled code also for small work: many pieces of it pay for the compiler together."""
    token = _many.set(True)
    try:
        yield
    finally:
        _many.reset(token)


@cache
def _say_slow() -> None:
    """Tell the person at the terminal, once, why nothing seems to happen."""
    say_error(
        f"note: numba is not installed, so work on more than {COMPILE_ABOVE:,} ops is done by the "
        "plain interpreter, about a hundred times slower; pip install numba"
    )


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in machine code, with the parts it calls; itself where there is no compiler."""
    try:
        from numba import njit  # deferred: loading it costs more than a small schedule
    except ImportError:
        _say_slow()
        return function
    known = function.__globals__
    called = [
        name for name in function.__code__.co_names if isinstance(known.get(name), KernelPart)
    ]
    if called:
        parts = {name: known[name].compiled for name in called}
        whole = FunctionType(function.__code__, {**known, **parts}, function.__name__)
        function = update_wrapper(whole, function)
        del function.__wrapped__
        # The compiler's cache looks at the file of the function alone, and a part may stand in
        # another one: a name of its own keeps a kernel from being loaded with a part of yesterday.
        function.__qualname__ += "_" + _digest([known[name].plain for name in called])
    compiled: Callable[..., Any] = njit(cache=True, nogil=True)(function)
    return compiled


def _digest(functions: list[Callable[..., Any]]) -> str:
    """What stands for the code of some functions and of all parts that they call."""
    digest = sha256()
    while functions:
        code, known = functions[0].__code__, functions[0].__globals__
        found = [known.get(name) for name in code.co_names]
        numbers = [value for value in found if isinstance(value, int | float)]
        digest.update(repr((code.co_code, code.co_consts, code.co_names, numbers)).encode())
        parts = (each.plain for each in found if isinstance(each, KernelPart))
        functions = [*functions[1:], *parts]
    return digest.hexdigest()[:12]


def part(function: Callable[..., Any]) -> KernelPart:
    """Mark a piece of a kernel."""
    return KernelPart(function)


def kernel(function: Callable[..., Any]) -> Kernel:
    """Mark a loop over arrays as one to compile when the work is large."""
    return Kernel(function)

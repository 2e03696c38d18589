"""One source for the hot loops: compiled where it pays, plain Python where it does not.

A loop over a million ops must be compiled, but a command that looks at forty must not wait for the
compiler to load. So each hot loop is one function over numpy arrays, marked `@kernel`; it runs as
it is on small inputs and through numba on large ones. Both run the same lines.
"""

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any

COMPILE_ABOVE = 20_000
"""Ops from which compiled code wins over the half second that loading numba takes."""


class Kernel:
    """A loop that picks plain or compiled execution by the size of its work."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.plain = function
        update_wrapper(self, function)

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        from numba import njit  # deferred: loading it costs more than a small schedule

        compiled: Callable[..., Any] = njit(cache=True, nogil=True)(self.plain)
        return compiled

    def __call__(self, size: int, *arguments: Any) -> Any:
        """Run over `arguments`; `size` is the number of ops they stand for."""
        run = self.compiled if size > COMPILE_ABOVE else self.plain
        return run(*arguments)


def kernel(function: Callable[..., Any]) -> Kernel:
    """Mark a loop over arrays as one to compile when the work is large."""
    return Kernel(function)

"""What the main thread has done for a call of a side stream when it submitted it."""

from collections.abc import Callable
from typing import NamedTuple


class Beginning(NamedTuple):
    """Memory belongs to the stream that computes: the main thread takes it and gives it back."""

    took_memory: bool = False
    """Whether memory was taken, which what was issued before may still use."""
    let_go: Callable[[], None] | None = None
    """Gives memory back that the call reads, once it has ended."""

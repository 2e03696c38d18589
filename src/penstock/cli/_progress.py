"""How far a long piece of work is, for the person who waits: a bar on a terminal, or a line on
stderr every few seconds, also while nothing is done yet."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from penstock.cli._output import note

Item = TypeVar("Item")

EVERY = 10.0
"""Seconds between two lines."""


def show_progress(items: list[Item], what: str) -> Iterator[Item]:
    """The items one by one, while it is shown how many are done."""
    return _with_bar(items, what) if sys.stderr.isatty() else _with_lines(items, what)


def _with_bar(items: Iterable[Item], what: str) -> Iterator[Item]:
    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*parts, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    with bar:
        yield from bar.track(items, description=what)


def _with_lines(items: list[Item], what: str) -> Iterator[Item]:
    done = [0]
    with _every(EVERY, lambda seconds: note(f"{what}: {done[0]} of {len(items)}, {seconds:.0f} s")):
        for item in items:
            yield item
            done[0] += 1


@contextmanager
def show_bytes(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to be told how many bytes of how many are done, which is shown."""
    if sys.stderr.isatty():
        parts = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        bar = Progress(*parts, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
        with bar:
            task = bar.add_task(what, total=None)
            yield lambda done, size: bar.update(task, completed=done, total=size)
        return
    told = [0, 0]

    def say(seconds: float) -> None:
        if told[1]:
            note(f"{what}: {told[0]:,} of {told[1]:,} bytes, {seconds:.0f} s")

    def tell(done: int, size: int) -> None:
        told[:] = done, size

    with _every(EVERY, say):
        yield tell


@contextmanager
def show_wait(what: str) -> Iterator[None]:
    """That work goes on of which nobody knows the end."""
    if sys.stderr.isatty():
        parts = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*parts, console=Console(stderr=True), transient=True) as spinner:
            spinner.add_task(what, total=None)
            yield
        return
    with _every(EVERY, lambda seconds: note(f"{what}: {seconds:.0f} s")):
        yield


@contextmanager
def show_passes(what: str) -> Iterator[Callable[[int], None]]:
    """A function to be told of passes that are done, which are counted where a person waits."""
    done = [0]

    def tell(passes: int) -> None:
        done[0] += passes

    with _every(EVERY, lambda seconds: note(f"{what}: {done[0]:,} passes, {seconds:.0f} s")):
        yield tell


@contextmanager
def _every(seconds: float, say: Callable[[float], None]) -> Iterator[None]:
    """Say something again and again until the block ends."""
    over, since = Event(), monotonic()

    def speak() -> None:
        while not over.wait(seconds):
            say(monotonic() - since)

    speaker = Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        over.set()
        speaker.join()

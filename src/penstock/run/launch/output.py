"""What the ranks print, brought to one console.

Rank 0 speaks for the run. Of the others only errors are shown, with the rank in front; everything
that a rank prints goes to a file of its own where a folder is given. Only what rank 0 writes to a
terminal stays there: progress bars would neither work through a pipe nor be of use in a file.
"""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import IO, Any, BinaryIO

from penstock.errors import RunError
from penstock.run.launch.start import OutputPair, RankProcess
from penstock.terminal import printable

LONGEST_PIECE = 1 << 16
"""Bytes after which a line is passed on in parts."""

DRAIN = 2.0
"""Seconds to wait for the last words of ranks that have ended."""

LineSink = Callable[[bytes], Any]


class Console:
    """Where the output of some ranks goes."""

    def __init__(self, logs: Path | None = None) -> None:
        self.logs = logs
        self._files: dict[int, BinaryIO] = {}
        self._pumps: list[Thread] = []
        self._lock = Lock()

    def __enter__(self) -> "Console":
        return self

    def __exit__(self, *_: object) -> None:
        for pump in self._pumps:
            pump.join(DRAIN)
        for file in self._files.values():
            file.close()

    def sinks(self, rank: int) -> OutputPair:
        """What to start a rank with."""
        if self.logs is not None:
            self._files[rank] = _open(self.logs, rank)
            return OutputPair(
                _unless_terminal(rank, sys.stdout), _unless_terminal(rank, sys.stderr)
            )
        return OutputPair() if rank == 0 else OutputPair(subprocess.DEVNULL, subprocess.PIPE)

    def attach(self, rank: int, process: RankProcess) -> None:
        """Follow what a rank prints through its pipes."""
        log = self._files.get(rank)
        if process.stdout:
            self._pump(process.stdout, log, sys.stdout if rank == 0 else None, "")
        if process.stderr:
            self._pump(process.stderr, log, sys.stderr, f"[rank {rank}] " if rank else "")

    def _pump(self, pipe: IO[bytes], log: BinaryIO | None, screen: Any, prefix: str) -> None:
        sinks = [_quietly(log.write)] if log else []
        if screen is not None:
            sinks.append(_quietly(self._shown(screen, prefix)))
        pump = Thread(target=_follow, args=(pipe, sinks), name="output", daemon=True)
        self._pumps.append(pump)
        pump.start()

    def _shown(self, screen: Any, prefix: str) -> LineSink:
        def show(line: bytes) -> None:
            if prefix:
                line = (prefix + printable(line.decode(errors="backslashreplace"))).encode()
            with self._lock:
                screen.buffer.write(line)
                screen.buffer.flush()

        return show


def _unless_terminal(rank: int, stream: Any) -> int | None:
    return None if rank == 0 and stream.isatty() else subprocess.PIPE


def _open(folder: Path, rank: int) -> BinaryIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / f"rank-{rank}.log").open("ab", buffering=0)
    except OSError as error:
        raise RunError(
            f"cannot write the logs of rank {rank} in {folder}: {error.strerror}",
            hint="give another folder for the logs",
        ) from error


def _follow(pipe: IO[bytes], sinks: list[LineSink]) -> None:
    """Pass on line by line until the end, so that lines of several ranks do not mix.

    A rank must never block because nobody reads, and a line without an end may not fill the memory.
    """
    with pipe:
        while line := pipe.readline(LONGEST_PIECE):
            for sink in sinks:
                sink(line)


def _quietly(write: LineSink) -> LineSink:
    """A sink that a closed console or a full disk does not break."""

    def sink(line: bytes) -> None:
        with suppress(OSError, ValueError):
            write(line)

    return sink

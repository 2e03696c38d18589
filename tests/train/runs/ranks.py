"""Training runs with real processes, started in a moment.

Most of the seconds that it takes to start a rank go into importing torch. So a server imports it
once, and every rank is a fork of it that then does what `penstock train CONFIG` does as one rank
of many: the environment tells it its place, the store is hosted here, as a launcher would.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

from fork_server import CONTEXT
from penstock.cli.main import main
from penstock.run.process.environment import RankPlace
from penstock.run.process.store import host

LIMIT = 240.0
"""Seconds in which a run of some steps is over, on a machine that is busy with others."""

Prepare = Callable[[], None]
"""Something that a rank does before it starts, such as spoiling a part of the program."""

CONFIG = """
[run]
steps = 8
dtype = "float64"
device = "cpu"
directory = "{folder}/run"

[model]
{model}

[data]
source = "text"
paths = ["{folder}/text"]

[batch]
length = 32
microbatches = 4

[pipeline]
schedule = "seq1f1b"
devices = 2
slices = 2

[optimizer]
learning_rate = 1e-2
warmup_steps = 2

[checkpoint]
every = 4

[log]
every = 1
report = false

[watch]
heartbeat = 0.25
patience = 30.0
"""

MODEL = """
layers = 4
hidden = 16
ffn = 24
heads = 2
kv_heads = 1
head_size = 8
vocabulary = 256
"""


class Ran(NamedTuple):
    """What is left of a run."""

    folder: Path
    codes: tuple[int | None, ...]
    """Exit code of each rank."""
    said: tuple[str, ...]
    """What each rank has printed."""

    @property
    def records(self) -> bytes:
        return (self.folder / "metrics.jsonl").read_bytes()

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.records.splitlines()]

    @property
    def losses(self) -> list[float]:
        return [record["loss"] for record in self.metrics]

    @property
    def causes(self) -> list[str]:
        """Errors that any rank has printed."""
        return [
            line for said in self.said for line in said.splitlines() if line.startswith("error: ")
        ]


class Setting:
    """A folder with a configuration and some text to train on."""

    def __init__(self, folder: Path, model: str = MODEL) -> None:
        self.folder = folder
        self.config = folder / "tiny.toml"
        self.config.write_text(CONFIG.format(folder=folder, model=model))
        write_text(folder / "text")

    def words(self, *changes: str, name: str = "run") -> list[str]:
        """The command line of a run in a folder of that name."""
        every = (f"run.directory={self.folder / name}", *changes)
        return ["train", str(self.config), *(word for each in every for word in ("--set", each))]

    def run(
        self,
        *changes: str,
        name: str = "run",
        ranks: int = 2,
        prepare: Prepare | None = None,
        flags: Sequence[str] = (),
    ) -> Ran:
        """Train with so many ranks to the end, whatever that is."""
        crew = self.start(*changes, name=name, ranks=ranks, prepare=prepare, flags=flags)
        return crew.ran()

    def start(
        self,
        *changes: str,
        name: str = "run",
        ranks: int = 2,
        prepare: Prepare | None = None,
        flags: Sequence[str] = (),
    ) -> "Members":
        """Begin to train with so many ranks."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return Members(folder, [*self.words(*changes, name=name), *flags], ranks, prepare)


def fresh(name: str) -> str:
    """A name that no run has had: a fixture may be made twice in one process, if others have taken
    some of its tests."""
    return f"{name}-{token_hex(4)}"


def write_text(folder: Path) -> None:
    """Documents of a few hundred bytes that have something to learn in them."""
    folder.mkdir()
    for number in range(12):
        words = (f"{number} times {factor} is {number * factor}." for factor in range(10 + number))
        (folder / f"{number:02}.txt").write_text(" ".join(words))


class Members:
    """The ranks of one run while they are there."""

    def __init__(self, folder: Path, words: list[str], ranks: int, prepare: Prepare | None) -> None:
        self.folder = folder
        self._server = host()
        self._files = [folder / f"said-{rank}.txt" for rank in range(ranks)]
        self.processes: list[ForkServerProcess] = []
        for rank, file in enumerate(self._files):
            place = RankPlace(rank, ranks, rank, ranks, port=self._server.port, hosted=True)
            arguments = (place.environment(), words, file, prepare)
            self.processes.append(CONTEXT.Process(target=be_rank, args=arguments, daemon=True))
            self.processes[-1].start()

    def ran(self) -> Ran:
        """Wait for the end."""
        deadline = time.monotonic() + LIMIT
        for process in self.processes:
            process.join(max(deadline - time.monotonic(), 0.1))
            if process.is_alive():
                process.kill()
                process.join()
        codes = tuple(process.exitcode for process in self.processes)
        return Ran(self.folder, codes, tuple(file.read_text() for file in self._files))


def be_rank(
    environment: dict[str, str], words: list[str], file: Path, prepare: Prepare | None
) -> None:
    """What a fork does: `penstock WORDS` as one rank."""
    os.environ.update({**environment, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"})
    said = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    if prepare is not None:
        prepare()
    sys.exit(main(words))

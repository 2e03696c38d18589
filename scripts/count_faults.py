"""Count what becomes of runs whose processes are killed, frozen and told to stop.

    python scripts/count_faults.py 20

Every fault is tried so many times, each time on a new run, between the moment at which the first
rank is started (nothing is imported yet) and some seconds later. It counts as held if every process
is gone within the limit, and, where a rank is at fault, if the rank was named within five seconds.
Needs Linux: processes are found by their environment in /proc. With `--device cuda` ranks train on
GPUs, over NCCL where that can be; give `--latest` the seconds in which they certainly train.
"""

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from penstock.parent_process import tie

CONFIG = """
[run]
steps = 1000000
device = "cpu"
[model]
layers = 2
hidden = 16
ffn = 24
heads = 2
kv_heads = 1
head_size = 8
vocabulary = 256
[batch]
length = 32
[pipeline]
schedule = "1f1b"
devices = 2
[checkpoint]
every = 20
"""

MARK = "PENSTOCK_COUNTED"
"""Variable that every process of a run inherits, by which it is found also as an orphan."""
NAMED = 5.0
"""Seconds within which a rank at fault is named."""
LATEST = 12.0
"""Seconds after the start of the first rank at which a fault may still happen."""
STARTED = 120.0
"""Seconds in which ranks are started, on a machine that is busy with others."""
POLL = 0.02


class Started:
    """A command at work, with all the processes that it has started."""

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        self._mark = f"{MARK}={secrets.token_hex(8)}"
        self.said = folder / "said.txt"
        name, _, value = self._mark.partition("=")
        tied = tie()  # whoever ends this script ends what it has started
        with self.said.open("wb") as said:
            self.launcher = subprocess.Popen(
                [sys.executable, "-m", *words],
                env={**os.environ, **tied.environment, name: value},
                pass_fds=[tied.descriptor],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=folder,
                start_new_session=True,
            )

    def ranks(self) -> dict[int, int]:
        """Process of each rank that is there."""
        return {
            int(name.removeprefix("RANK=")): process
            for process, names in self._processes()
            for name in names
            if name.startswith("RANK=")
        }

    @property
    def left(self) -> list[int]:
        """Processes that are there, orphans too, and without those that only wait for burial."""
        return [process for process, _ in self._processes()]

    def _processes(self) -> Iterator[tuple[int, list[str]]]:
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                names = path.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if self._mark in names:
                yield int(path.parent.name), names

    def wait_for_child(self) -> None:
        """Until the command has started a process."""
        self._wait_for(lambda: len(self.left) > 1, STARTED)

    def wait_for_ranks(self, count: int = 1) -> None:
        """Until so many ranks are processes, whatever they have imported."""
        self._wait_for(lambda: len(self.ranks()) >= count, STARTED)

    def wait_for_word(self, word: str, seconds: float = STARTED) -> bool:
        """Whether something has been said before the time is up."""
        return self._wait_for(lambda: word in self.said.read_text(), seconds)

    def wait_for_end(self, seconds: float) -> bool:
        """Whether everybody has gone before the time is up."""
        return self._wait_for(lambda: self.launcher.poll() is not None and not self.left, seconds)

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not (found := condition()) and time.monotonic() < deadline:
            time.sleep(POLL)
        return found

    def end(self) -> None:
        for process in self.left:
            os.kill(process, signal.SIGKILL)
        self.launcher.wait()


@contextmanager
def started(words: Sequence[str], folder: Path) -> Iterator[Started]:
    """A command whose processes are all gone after the block, whatever has become of them."""
    run = Started(words, folder)
    try:
        yield run
    finally:
        run.end()


TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
TRAIN = ("penstock", "train", "tiny.toml")
COMMANDS = {
    "verify": ("penstock", "verify", "--all"),
    "train": TRAIN,
    "bench run": ("penstock", "bench", "run", "--emulate", "--ranks", "2"),
    "best": ("penstock", "best", "-p", "8", "-m", "32", "--seconds", "60"),
    "torchrun": (*TORCHRUN, *TRAIN),
}
"""Everything that starts processes: the module that is run, and its words."""


class Fault(NamedTuple):
    """A signal to the launcher, or to a rank."""

    verb: str
    number: signal.Signals
    to_rank: bool = False
    within: float = 5.0
    """Seconds in which everybody has to be gone."""

    def __str__(self) -> str:
        whom = "a rank" if self.to_rank else "the launcher"
        return f"{self.number.name} to {whom} of `{self.verb}`"


FAULTS = (
    *(Fault("verify", number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)),
    *(Fault("train", number) for number in (signal.SIGHUP, signal.SIGKILL)),
    *(Fault("bench run", number) for number in (signal.SIGTERM, signal.SIGKILL)),
    *(Fault("best", number) for number in (signal.SIGTERM, signal.SIGKILL)),
    Fault("torchrun", signal.SIGKILL),
    Fault("train", signal.SIGTERM, within=30.0),
    Fault("train", signal.SIGKILL, to_rank=True, within=NAMED + 5.0),
    Fault("train", signal.SIGSTOP, to_rank=True, within=NAMED + 5.0),
)
"""SIGTERM lets a run finish its step and save; a frozen rank is named first."""


class Trial(NamedTuple):
    """What became of one run."""

    gone: float
    """Seconds until everybody had gone."""
    named: float
    """Seconds until the rank was named; 0 where the fault was the launcher's."""
    held: bool


def tried(fault: Fault, chance: random.Random, device: str, latest: float) -> Trial:
    """Do it to a new run, some time after its start."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tiny.toml").write_text(CONFIG.replace("cpu", device))
        with started(COMMANDS[fault.verb], folder) as run:
            run.wait_for_child()
            if fault.to_rank:
                run.wait_for_ranks(2)
            time.sleep(chance.uniform(0.0, latest))
            return _outcome(run, fault, chance.randrange(2))


def _outcome(run: Started, fault: Fault, rank: int) -> Trial:
    target = run.ranks()[rank] if fault.to_rank else run.launcher.pid
    began = time.monotonic()
    os.kill(target, fault.number)
    words = f"error: rank {rank} "
    named = not fault.to_rank or run.wait_for_word(words, NAMED)
    after = time.monotonic() - began if fault.to_rank else 0.0
    gone = run.wait_for_end(fault.within)
    return Trial(time.monotonic() - began, after, named and gone)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("times", type=int, help="how often each fault is tried")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--latest", type=float, default=LATEST, help="seconds after the start")
    parser.add_argument("--only", default="", help="faults with this in their name")
    arguments = parser.parse_args()
    # Under nohup, runs would inherit that SIGHUP is ignored; what is caught is not inherited.
    signal.signal(signal.SIGHUP, lambda *_: None)
    chance = random.Random(arguments.seed)
    print("| fault | times | held | named after at most | all gone after at most |")
    print("| --- | --- | --- | --- | --- |")
    bad = 0
    for fault in (fault for fault in FAULTS if arguments.only in str(fault)):
        where = arguments.device, arguments.latest
        trials = [tried(fault, chance, *where) for _ in range(arguments.times)]
        held = sum(trial.held for trial in trials)
        bad += len(trials) - held
        named = f"{max(trial.named for trial in trials):.1f} s" if fault.to_rank else ""
        gone = max(trial.gone for trial in trials)
        print(f"| {fault} | {len(trials)} | {held} | {named} | {gone:.1f} s |", flush=True)
    sys.exit(min(bad, 1))


if __name__ == "__main__":
    main()

"""A tiny pipeline for the tests of faults: the lanes of a real program, one number per transfer.

    python -m run.faults.toy STEPS FAULT RANK STEP OP

The rank does FAULT (a case of `misbehave`, differ or nothing) when it comes to the op of that
number in that step (or, with the number behind the last op, to the end of it; or, with step -1,
when it has arrived and is about to connect to the others), and notes the time in the file FAULT;
not after a restart. Sums of what arrives make up the result, which rank 0 prints. In the folder
STATE each rank keeps its sum of every step, and goes on from the last one that all ranks have.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from penstock.errors import RunError
from penstock.lower import lower
from penstock.run.comm.handshake import agree
from penstock.run.process.rendezvous import Connection
from penstock.run.program.calls import Call, Lane
from penstock.run.program.compile import compile_lane
from penstock.run.watchdog.alarm import Patience
from penstock.run.watchdog.position import Tracker
from penstock.run.watchdog.watched import watched_connection
from penstock.schedules import build

FROZEN = 3.5
"""Seconds after which a stopped rank is named."""


class Fault(NamedTuple):
    """What goes wrong, and when."""

    what: str = "nothing"
    rank: int = 0
    step: int = 0
    op: int = 0


def misbehave(fault: Fault) -> None:
    if note := os.environ.get("FAULT"):
        Path(note).write_text(str(time.monotonic()))  # the same clock for all processes of a host
    match fault.what:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "nap":
            waker = ["sh", "-c", f"sleep 2.5; kill -CONT {os.getpid()}"]
            subprocess.Popen(waker, start_new_session=True)
            os.kill(os.getpid(), signal.SIGSTOP)
        case "orphan":
            os.kill(os.getppid(), signal.SIGKILL)
        case "raise":
            broken_layer(3)
        case "refuse":
            raise RunError("the loss is not a number", hint="lower the rate")
        case "hang":
            time.sleep(1000)
        case "exit":
            os._exit(7)


def broken_layer(size: int) -> torch.Tensor:
    return torch.zeros(size) @ torch.zeros(size + 1)


class Pipeline:
    """Runs the lane of one rank and keeps a running sum."""

    def __init__(self, lane: Lane, tracker: Tracker, fault: Fault) -> None:
        self.lane, self.tracker, self.fault = lane, tracker, fault
        self.value = torch.ones(1, dtype=torch.float64)

    def step(self) -> None:
        sends: list[dist.Work | None] = []
        for number, step in enumerate(self.lane.calls):
            self._receive(step)
            self.tracker.runs(step)
            self._err(number)
            self.value = self.value * 1.01 + number
            sends += [
                dist.isend(self.value.clone(), post.peer, tag=post.tag) for post in step.sends
            ]
            self.tracker.ran(step)
        for work in sends:
            if work:
                work.wait()
        self.tracker.at = "ends its step"
        self._err(len(self.lane.calls))
        with self.tracker.gathers("end the step"):
            dist.barrier()

    def _err(self, number: int) -> None:
        if (dist.get_rank(), self.tracker.step, number) == self.fault[1:]:
            misbehave(self.fault)

    def _receive(self, step: Call) -> None:
        for post in step.waits:
            self.tracker.waits(step, post)
            arrived = torch.empty(1, dtype=torch.float64)
            dist.recv(arrived, post.peer, tag=post.tag)
            self.value = self.value + arrived


class State:
    """One rank's sums on disk, bit for bit; without a folder nothing is kept."""

    def __init__(self, rank: int) -> None:
        self.folder = os.environ.get("STATE", "")
        self.rank = rank

    def _file(self, step: int) -> Path:
        return Path(self.folder) / f"{step}-{self.rank}"

    def newest(self) -> int:
        """The last step that every rank has."""
        step = 0
        while self.folder and self._file(step + 1).exists():
            step += 1
        found = torch.tensor(step)
        dist.all_reduce(found, dist.ReduceOp.MIN)
        return int(found)

    def load(self, step: int) -> torch.Tensor:
        value = float.fromhex(self._file(step).read_text()) if step else 1.0
        return torch.tensor([value], dtype=torch.float64)

    def save(self, step: int, value: torch.Tensor) -> None:
        if self.folder:
            part = self._file(step).with_suffix(".part")
            part.write_text(value.item().hex())
            part.rename(self._file(step))


def run(connection: Connection, tracker: Tracker, steps: int, fault: Fault) -> None:
    program = lower(build("1f1b", devices=connection.world, microbatches=4))
    lane = compile_lane(program, connection.rank)
    tracker.follow(lane, int)
    odd = fault.what == "differ" and fault.rank == connection.rank
    agree(connection, {"optimizer.learning_rate": "0.001" if odd else "0.01"})
    pipeline = Pipeline(lane, tracker, fault if connection.place.attempt == 0 else Fault())
    state = State(connection.rank)
    begin = state.newest()
    pipeline.value = state.load(begin)
    for tracker.step in range(begin, steps):
        pipeline.step()
        state.save(tracker.step + 1, pipeline.value)
    if connection.rank == 0:
        print(f"sum {pipeline.value.item().hex()}", flush=True)


def main(words: list[str]) -> None:
    steps, what, *numbers = words
    fault = Fault(what, *map(int, numbers))
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # as a run does that saves first
    if (int(os.environ["RANK"]), -1) == fault[1:3]:
        dist.init_process_group = lambda *_, **__: misbehave(fault)
    tracker = Tracker()
    patience = Patience(stuck=6.0, frozen=FROZEN)
    with watched_connection("gloo", tracker, patience, beat=0.25) as watch:
        run(watch.connection, tracker, int(steps), fault)


if __name__ == "__main__":
    main(sys.argv[1:])

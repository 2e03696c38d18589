"""What goes wrong in a rank, done to it before it starts: to be given as `prepare`."""

import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from penstock.data import SampleStream
from penstock.data.sources import TextFiles
from penstock.files.durable import Disk
from penstock.model.stages.decoder import DecoderStage
from penstock.run.process import machine
from penstock.run.process.machine import Machine
from penstock.run.program.calls import Call
from penstock.run.step.optimizer import TorchAdamW
from penstock.run.watchdog.position import Tracker
from penstock.train.loop import rank as rank_module
from penstock.train.loop import trainer
from penstock.train.records.sinks import FileSink

LAST_WORD = "killed"


def raise_in_model(rank: int, call: int) -> None:
    """A forward of one rank raises when it is called for that time."""
    if os.environ["RANK"] == str(rank):
        forward, calls = DecoderStage.forward, iter(range(1, call + 1))

        def broken_layer(self: DecoderStage, *given: Any) -> Any:
            if next(calls) == call:
                raise ValueError("the layer is broken")
            return forward(self, *given)

        DecoderStage.forward = broken_layer  # type: ignore[method-assign]


def raise_in_data(call: int) -> None:
    """The data of every rank raise when a batch is asked for that time."""
    batch_at, calls = SampleStream.batch_at, iter(range(1, call + 1))

    def lost_disk(self: SampleStream, *given: Any) -> Any:
        if next(calls) == call:
            raise OSError(5, "Input/output error", "shard-7")
        return batch_at(self, *given)

    SampleStream.batch_at = lost_disk  # type: ignore[method-assign]


def slow_data(seconds: float) -> None:
    """A batch takes its time."""
    batch_at = SampleStream.batch_at

    def slowly(self: SampleStream, *given: Any) -> Any:
        time.sleep(seconds)
        return batch_at(self, *given)

    SampleStream.batch_at = slowly  # type: ignore[method-assign]


def sleep_in_update(rank: int, call: int) -> None:
    """The optimizer of one rank does not come back when it is called for that time."""
    if os.environ["RANK"] == str(rank):
        TorchAdamW.update = _sleepy(TorchAdamW.update, call)  # type: ignore[method-assign]


def sleep_in_evaluation(rank: int, step: int) -> None:
    """One rank does not come back from its held-out data, in the first step that asks for it."""
    if os.environ["RANK"] == str(rank):
        SampleStream.batch_at = _sleepy(SampleStream.batch_at, step + 1)  # type: ignore[method-assign]


def _sleepy(work: Callable[..., Any], call: int) -> Callable[..., Any]:
    calls = iter(range(1, call + 1))

    def asleep(*given: Any) -> Any:
        if next(calls) == call:
            time.sleep(1000)
        return work(*given)

    return asleep


def raise_in_closing() -> None:
    """No room is left when the records are closed."""

    def full(self: FileSink) -> None:
        raise OSError(28, "No space left on device")

    FileSink.close = full  # type: ignore[method-assign]


def sleep_in_closing() -> None:
    """Closing the records never ends."""
    FileSink.close = _sleepy(FileSink.close, 1)  # type: ignore[method-assign]


def raise_in_model_and_closing() -> None:
    raise_in_model(0, 3)
    raise_in_closing()


def slow_text(seconds: float) -> None:
    """Text takes long to be read, in one piece."""
    fingerprint = TextFiles.fingerprint

    def slow(self: TextFiles) -> str:
        if os.environ["RANK"] == "0":
            time.sleep(seconds)
        return fingerprint(self)

    TextFiles.fingerprint = slow  # type: ignore[method-assign]


def slow_disk(seconds: float) -> None:
    """Every file takes long to be safe."""
    sync = Disk.sync

    def slow(self: Disk, file: BinaryIO) -> None:
        time.sleep(seconds)
        sync(self, file)

    Disk.sync = slow  # type: ignore[method-assign]


def small_files(size: int) -> None:
    """No file can grow beyond so many bytes, as on a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def without_room(here: Machine) -> None:
    """The ranks find themselves on a machine that is too small for them."""
    machine.this_machine = lambda root=Path("/"): here


class Mortal(Tracker):
    """Follows its lane until an op at which the process is killed."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.left = last

    def runs(self, call: Call) -> None:
        super().runs(call)
        self.left -= 1
        if self.left < 0:
            print(LAST_WORD, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def die_at(op: int) -> None:
    """This rank is killed when it has run so many ops."""
    rank_module.Tracker = lambda: Mortal(op)  # type: ignore[assignment, misc]


PEAK = 10**9


def known_peak() -> None:
    """A host whose peak is known: FLOPs in a second."""
    trainer.peak_flops = lambda device: PEAK  # type: ignore[attr-defined]

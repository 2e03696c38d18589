"""What processes do for a trial on a GPU, with help for whoever looks for a wait without end.

A job is known to other processes by its module and name, so these are not in the script itself.
"""

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from penstock.run.execute.observer import Quiet
from penstock.run.process.rendezvous import Connection
from penstock.run.program.calls import Call, Post
from penstock.run.step.build import torch_device
from penstock.verify.trial import TrialPart, run_trial, trial_engine, trial_part
from penstock.verify.variants import Trial


class Synchronising(Quiet):
    """Waits for everything on the device between any two calls: no transfer may need the host."""

    def waits(self, call: Call, post: Post) -> None:
        self._wait()

    def runs(self, call: Call) -> None:
        self._wait()

    def ran(self, call: Call) -> None:
        self._wait()

    def _wait(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()


def ready(connection: Connection, device: str) -> None:
    """Have a device and its libraries loaded, which takes longer than a trial."""
    torch.zeros(1, device=torch_device(device, connection.place))


def plain_trial(connection: Connection, trial: Trial, patience: float) -> TrialPart:
    """The trial as it is; a process that waits longer says where."""
    with stacks_after(patience):
        return run_trial(connection, trial)


def synchronised_trial(connection: Connection, trial: Trial, patience: float) -> TrialPart:
    """The trial with a synchronisation of the device before and after every call."""
    with stacks_after(patience), trial_engine(connection, trial) as engine:
        engine.executor.observer = Synchronising()
        return trial_part(engine, trial)


@contextmanager
def stacks_after(seconds: float) -> Iterator[None]:
    """Write the stack of every thread to stderr if the block takes longer."""
    faulthandler.dump_traceback_later(seconds)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()

"""A job of ranks whose loans wait longer for their messages than ops work."""

from time import sleep

from penstock.bench.measure.op_work import WorkingSteps, run_working
from penstock.bench.measure.real import TrainingWork
from penstock.core.schedule import Schedule
from penstock.run.execute.loans import Arriving
from penstock.run.process.rendezvous import Connection

LATE = 0.05
"""Seconds that a message of a loan is late."""


def run_late(
    connection: Connection, work: TrainingWork, schedule: Schedule, lengths: tuple[int, ...]
) -> WorkingSteps:
    """One step."""
    wait = Arriving.wait

    def wait_longer(arriving: Arriving) -> None:
        sleep(LATE)
        wait(arriving)

    Arriving.wait = wait_longer  # type: ignore[method-assign]
    try:
        return run_working(connection, work, schedule, lengths, 0)
    finally:
        Arriving.wait = wait  # type: ignore[method-assign]

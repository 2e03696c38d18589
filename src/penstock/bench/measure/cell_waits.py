"""How long a rank waits for the other ranks of its cell: communication that nothing hides."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from time import perf_counter_ns
from typing import NamedTuple

from penstock.arch.cell_shape import CellShape
from penstock.bench.measure.real import HOST, TrainingWork, measure_steps
from penstock.core.schedule import Schedule
from penstock.run.comm.cell_group import StartedCollective
from penstock.run.process.rendezvous import Connection
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.build import build_engine
from penstock.run.step.optimizer import NoUpdate
from penstock.run.step.state import begin


class WaitingSteps(NamedTuple):
    """One rank's steps."""

    seconds: list[float]
    waited: float
    """Seconds of the last step in which the rank waited for others of its cell."""
    loss: float


class WaitClock:
    """Nanoseconds that collectives of a cell were waited for.

    A collective that waits for another one inside is counted once.
    """

    def __init__(self) -> None:
        self.nanoseconds, self._inside = 0, False

    def timed(self, wait: Callable[[StartedCollective], None]) -> Callable[..., None]:
        def wait_and_count(started: StartedCollective) -> None:
            if self._inside:
                wait(started)
                return
            begun, self._inside = perf_counter_ns(), True
            wait(started)
            self.nanoseconds += perf_counter_ns() - begun
            self._inside = False

        return wait_and_count


@contextmanager
def wait_clock() -> Iterator[WaitClock]:
    """Count as long as it is open: the runtime itself has no clock there, for its host time."""
    clock, wait = WaitClock(), StartedCollective.wait
    StartedCollective.wait = clock.timed(wait)  # type: ignore[method-assign]
    try:
        yield clock
    finally:
        StartedCollective.wait = wait  # type: ignore[method-assign]


def run_waiting(
    connection: Connection, work: TrainingWork, schedule: Schedule, cell: CellShape, steps: int
) -> WaitingSteps:
    """Steps of a schedule over cells, without the optimizer, and what they waited inside them."""
    layout = Layout.of(work.model, schedule, work.length, cell=cell)
    lengths = ((work.length,),) * work.microbatches
    plan, batch = StepPlan(layout, schedule, lengths), work.batch()
    with closing(build_engine(plan, 1, NoUpdate(), HOST)) as engine, wait_clock() as clock:
        begin(engine, seed=0)

        def step() -> float:
            clock.nanoseconds = 0
            return engine.gradients(batch).loss

        seconds, loss = measure_steps(step, steps)
    return WaitingSteps(seconds, clock.nanoseconds / 1e9, loss)

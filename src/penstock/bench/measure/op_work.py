"""How much each op of a step works: CPU time of the rank's thread from its start to its end.

Ops that help each other also wait for each other, and a wait is no work. A thread that waits for a
message takes no CPU time, and with one thread for each rank all that an op computes is in it: its
own attention, the attention that it does for others, and the copies of what they exchange.
"""

from statistics import median
from time import thread_time_ns
from typing import NamedTuple

from torch import Tensor

from penstock.bench.measure.real import TrainingWork, measure_steps, open_executor
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.run.process.rendezvous import Connection


class WorkingSteps(NamedTuple):
    """One rank's steps."""

    seconds: list[float]
    loss: float
    """Mean over the labels, of the last step; 0 where no loss is met."""
    work: dict[Op, int]
    """Nanoseconds of each op, the median of the steps."""


def run_working(
    connection: Connection,
    work: TrainingWork,
    schedule: Schedule,
    lengths: tuple[int, ...],
    steps: int,
) -> WorkingSteps:
    """Steps of a schedule without the optimizer; every microbatch is cut to the same lengths."""
    passes: list[list[int]] = []
    with open_executor(connection, work, schedule, lengths) as (executor, pieces):
        executor.clock = thread_time_ns

        def step() -> list[Tensor]:
            losses = executor.step(pieces)
            spans = executor.spans
            passes.append([end - start for start, end in zip(spans.start, spans.end)])
            return losses

        seconds, losses = measure_steps(step, steps)
    each = [round(median(times)) for times in zip(*passes[-len(seconds) :])]
    ops = (call.op for call in executor.spans.calls)
    return WorkingSteps(
        seconds, work.scale * sum(loss.item() for loss in losses), dict(zip(ops, each))
    )

"""Where the time of a stage goes: seconds of each operation of one forward and backward.

One rank alone, one thread, the layers of one stage, a sequence cut into slices: the work of a
microbatch without a pipeline around it. Times are CPU times, which other processes hardly disturb;
those of single operations are what torch's profiler sees, without what they call.
"""

from collections import defaultdict
from time import process_time_ns
from typing import NamedTuple

import torch

from penstock.bench.measure.real import HOST, TrainingWork, initial_weights
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.lower import lower_for_running
from penstock.run.comm.transport import Alone
from penstock.run.execute.executor import Executor, by_stage
from penstock.run.process.rendezvous import Connection
from penstock.run.program.layout import Layout
from penstock.run.program.pieces import cut_batch
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.stages import boundary_of, home_views, stage_of


class Breakdown(NamedTuple):
    """Seconds of one microbatch on one stage."""

    seconds: float
    """CPU of all ops, without the profiler, in the best of some runs."""
    kinds: dict[str, float]
    """The same by kind."""
    operations: dict[str, float]
    """Of torch's operations, the costliest first, under the profiler."""
    faults: int
    """Pages that the system handed out during the best run."""


def breakdown(
    connection: Connection, work: TrainingWork, lengths: tuple[int, ...], repeats: int
) -> Breakdown:
    """All layers of a model as one stage, on a rank alone: a crew of one gives it the settings of
    memory that ranks have."""
    schedule = one_stage(work.microbatches, len(lengths))
    layout = Layout.of(work.model, schedule, work.length)
    plan = StepPlan(layout, schedule, (lengths,))
    stages = {0: stage_of(layout, 0, HOST)}
    executor = Executor(
        lower_for_running(schedule),
        0,
        by_stage(stages),
        transport=Alone(),
        boundary=boundary_of(layout, HOST),
        homes=home_views(stages, {0: initial_weights(layout, 0)}),
    )
    executor.clock = process_time_ns
    pieces = cut_batch(plan, work.batch(), scale=work.scale, device=HOST)
    executor.step(pieces)
    runs = []
    for _ in range(repeats):
        faults = page_faults()
        executor.step(pieces)
        runs.append((page_faults() - faults, _kinds(executor)))
    faults, kinds = min(runs, key=lambda run: sum(run[1].values()))
    with torch.profiler.profile() as profile:
        executor.step(pieces)
    events = sorted(profile.key_averages(), key=lambda event: -event.self_cpu_time_total)
    operations = {event.key: event.self_cpu_time_total / 1e6 for event in events}
    return Breakdown(sum(kinds.values()), kinds, operations, faults)


def one_stage(microbatches: int, slices: int) -> Schedule:
    """Each microbatch forwards and backwards, all on one device."""
    lane = [
        op
        for mb in range(microbatches)
        for op in (
            *(("F", 0, mb, slice) for slice in range(slices)),
            *(("B", 0, mb, slice) for slice in reversed(range(slices))),
        )
    ]
    return Schedule.of("one stage", Shape(1, 1, (slices,) * microbatches), [lane])


def page_faults() -> int:
    """Pages that this process has been handed so far."""
    from resource import RUSAGE_SELF, getrusage

    return getrusage(RUSAGE_SELF).ru_minflt


def _kinds(executor: Executor) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    spans = executor.spans
    for call, start, end in zip(spans.calls, spans.start, spans.end):
        found[call.op.kind] += (end - start) / 1e9
    return dict(found)

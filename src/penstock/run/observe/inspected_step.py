"""A step that is looked at: when its ops ran, how much CPU each took, what memory was alive.

Counting every allocation slows a step down, so it is run three times: once by the clock, once by
the meter, and once to see what the memory is for where the meter was highest. None changes a
weight.
"""

from collections.abc import Mapping, Sequence
from time import thread_time_ns
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.core.ops import Op
from penstock.data.batch import Microbatch
from penstock.plan.memory_by_class import ClassBytes
from penstock.run.execute.observer import Both, Quiet
from penstock.run.observe.classes import ClassObserver, held_bytes, peak_op
from penstock.run.observe.measured_timeline import (
    DevicePart,
    gather,
    of_cells,
    part_of,
    timeline_of,
)
from penstock.run.observe.memory_meter import Sample, record_memory
from penstock.run.program.calls import Call
from penstock.run.step.engine import Engine
from penstock.run.step.host_state import bytes_on_host
from penstock.sim.timeline import Timeline


class StepLook(NamedTuple):
    """What the first rank of a replica knows after a look."""

    timeline: Timeline
    """The step as it ran, with its memory: live tensor bytes above weights and optimizer."""
    seconds: list[float]
    """What each row took: CPU time where one thread of the host computes, whatever else the machine
    did; else from its start to its end, as a copy beside the compute lane always does."""
    host: Sequence[int] = ()
    """The most bytes that waited on the host at once, of each device."""
    kept: Sequence[int] = ()
    """Bytes of optimizer state on the host, of each device."""
    classes: Sequence[ClassBytes] = ()
    """What the memory of each device is for, when it holds most."""


class CpuTime(Quiet):
    """CPU time of the main thread in each op."""

    def __init__(self) -> None:
        self.nanoseconds: dict[Op, int] = {}
        self._began = 0

    def runs(self, call: Call) -> None:
        self._began = thread_time_ns()

    def ran(self, call: Call) -> None:
        self.nanoseconds[call.op] = thread_time_ns() - self._began


def look_at_step(engine: Engine, batch: Sequence[Microbatch]) -> StepLook | None:
    """Look at a step on this batch; the answer is at the first rank of each replica."""
    executor, observer = engine.executor, engine.executor.observer
    clock = CpuTime()
    try:
        executor.observer = Both(observer, clock)
        engine.gradients(batch)
        part = part_of(executor, engine.plan.schedule)
        with record_memory(*there_already(engine)) as recorder:
            executor.observer = Both(observer, recorder)
            engine.gradients(batch)
        executor.observer = observer
        classes = _classes(engine, batch, recorder.samples)
    finally:
        executor.observer = observer
    table = engine.plan.schedule.table
    spans = [end - start for start, end in zip(part.start, part.end)]
    cpu = spans
    if engine.device.type == "cpu" and torch.get_num_threads() == 1:
        ops = table.ops_at(part.rows)
        cpu = [clock.nanoseconds.get(op, span) for op, span in zip(ops, spans)]
    memory = {
        row: recorder.samples[op]
        for row, op in zip(part.rows, table.ops_at(part.rows))
        if op in recorder.samples
    }
    most = engine.host.pool.most
    kept = bytes_on_host(engine.ends.values())
    return _joined(
        engine, part._replace(cpu=cpu, memory=memory, host=most, kept=kept, classes=classes)
    )


def _classes(
    engine: Engine, batch: Sequence[Microbatch], samples: Mapping[Op, Sample]
) -> ClassBytes | None:
    """What memory is for while most of it is alive; all ranks run the step once more for it."""
    op, executor = peak_op(samples), engine.executor
    observer = ClassObserver(executor, op, there_already(engine)) if op else Quiet()
    executor.observer = Both(executor.observer, observer)
    engine.gradients(batch)
    if not isinstance(observer, ClassObserver) or op is None:
        return None
    return observer.classes(held_bytes(engine), samples[op].peak)


def there_already(engine: Engine) -> list[Tensor]:
    """Tensors that outlive steps, and so are no part of what a step holds."""
    found: list[Tensor] = []
    for weights in engine.weights.values():
        # values are on the device, main weights may be elsewhere
        found += [weights.value, weights.frozen, weights.main, weights.grad]
    found += [buffer for buffers in engine.pool.flat.values() for buffer in buffers]
    for stage in engine.working.values():
        context = getattr(stage, "context", None)
        found += [table for both in context.tables for table in both] if context else []
    return found


def _joined(engine: Engine, part: DevicePart) -> StepLook | None:
    with engine.tracker.gathers("tell what they have measured"):
        parts = of_cells(gather(part, engine.mesh.along("device", "sequence", "tensor")))
    if not parts:
        return None
    schedule = engine.plan.schedule
    seconds = [0.0] * len(schedule.table)
    for each in parts:
        for row, nanoseconds in zip(each.rows, each.cpu):
            seconds[row] = nanoseconds * 1e-9
    host, kept = ([0] * schedule.shape.devices for _ in range(2))
    classes: dict[int, ClassBytes] = {}
    for each in parts:
        device = int(schedule.table.device[each.rows[0]])
        host[device], kept[device] = each.host, each.kept
        if each.classes is not None:
            classes[device] = each.classes
    sorted_classes = [classes[device] for device in sorted(classes)]
    return StepLook(timeline_of(schedule, parts), seconds, host, kept, sorted_classes)

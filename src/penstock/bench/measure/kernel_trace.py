"""The kernels of one step under torch's profiler, each with the op that launched it.

The profiler writes a list of events. A kernel has a number that its launch on the host has too, and
the launch lies inside the event of an op, which is written around every call.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from penstock.bench.measure.gpu import RATE, engine_of
from penstock.bench.measure.gpu_case import GpuCase
from penstock.bench.measure.kernel_classes import GpuKernel, breakdown_of
from penstock.bench.measure.step_clock import give_back, seconds_of
from penstock.run.execute.observer import Quiet
from penstock.run.program.calls import Call

TraceEvent = Mapping[str, Any]

ON_GPU = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
LAUNCHES = frozenset(("cuda_runtime", "cuda_driver"))
OP_PREFIX = "op "


class OpEvents(Quiet):
    """Writes an event around every call."""

    def __init__(self) -> None:
        self._open: Any = None

    def runs(self, call: Call) -> None:
        self._open = record_function(f"{OP_PREFIX}{call.op}")
        self._open.__enter__()

    def ran(self, call: Call) -> None:
        self._open.__exit__(None, None, None)


def breakdown_row(case: GpuCase, device: torch.device, first: int) -> dict[str, Any]:
    """Where the time of a step of ours goes, and how long it takes without the profiler."""
    batch = case.batch()
    with engine_of(case, device) as engine:
        for _ in range(max(first, 1)):
            engine.step(batch, RATE)
        plain = seconds_of(lambda: engine.step(batch, RATE), device)
        engine.executor.observer = OpEvents()
        traced = trace(lambda: engine.step(batch, RATE), device)
    give_back(device)
    found = breakdown_of(kernels_of(traced.events), traced.seconds)
    return {**case.named(), "seconds": plain, **found}


class Trace(NamedTuple):
    """A step under the profiler."""

    seconds: float
    events: list[TraceEvent]


def trace(step: Callable[[], object], device: torch.device) -> Trace:
    """Run a step under the profiler."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        seconds = seconds_of(step, device)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events: list[TraceEvent] = json.loads(path.read_text())["traceEvents"]
    return Trace(seconds, events)


def kernels_of(events: Sequence[TraceEvent]) -> list[GpuKernel]:
    """Kernels, copies and fills of a trace, with their ops."""
    launched = {
        event["args"]["correlation"]: float(event["ts"])
        for event in events
        if event.get("cat") in LAUNCHES and "correlation" in event.get("args", {})
    }
    op_at = ops_of(events)
    return [
        GpuKernel(
            event["name"],
            op_at(launched.get(event.get("args", {}).get("correlation"))),
            float(event["ts"]) * 1e-6,
            float(event["dur"]) * 1e-6,
        )
        for event in events
        if event.get("cat") in ON_GPU
    ]


def ops_of(events: Sequence[TraceEvent]) -> Callable[[float | None], str]:
    """The op that the host was in at a time, by the events that were written around calls."""
    spans = sorted(
        (float(event["ts"]), float(event["ts"]) + float(event["dur"]), _op_name(event))
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith(OP_PREFIX)
    )
    starts = [start for start, _, _ in spans]

    def op_at(time: float | None) -> str:
        if time is None:
            return ""
        at = bisect_right(starts, time) - 1
        return spans[at][2] if at >= 0 and time <= spans[at][1] else ""

    return op_at


def _op_name(event: TraceEvent) -> str:
    name: str = event["name"]
    return name.removeprefix(OP_PREFIX)

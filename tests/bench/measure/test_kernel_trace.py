"""Kernels of a trace, with the ops that launched them."""

from typing import Any

import pytest
import torch

from penstock.arch.config import ModelConfig
from penstock.bench.measure.gpu import engine_of
from penstock.bench.measure.gpu_case import GpuCase
from penstock.bench.measure.kernel_classes import GpuKernel
from penstock.bench.measure.kernel_trace import OpEvents, breakdown_row, kernels_of, ops_of, trace

pytestmark = pytest.mark.torch

HOST = torch.device("cpu")
CASE = GpuCase(
    "small", ModelConfig(2, 32, 48, 4, 2, 8, 40), 64, "seq1f1b", slices=2, dtype="float32"
)


def event(cat: str, name: str, start: float, dur: float, number: int | None = None) -> Any:
    """As the profiler writes it, in microseconds."""
    args = {} if number is None else {"correlation": number}
    return {"cat": cat, "name": name, "ts": start, "dur": dur, "args": args}


def test_a_kernel_belongs_to_the_op_in_which_it_was_launched() -> None:
    """It runs later, when the host is in another op already."""
    events = [
        event("user_annotation", "op 0F0.0", 100, 50),
        event("user_annotation", "op 0B0.0", 160, 40),
        event("user_annotation", "Optimizer.step#AdamW.step", 100, 200),
        event("cuda_runtime", "cudaLaunchKernel", 110, 5, 1),
        event("cuda_driver", "cuLaunchKernelEx", 170, 5, 2),
        event("cuda_runtime", "cudaMemsetAsync", 155, 2, 3),
        event("cpu_op", "aten::mm", 108, 10),
        {"name": "process_name", "ph": "M"},
        event("kernel", "nvjet", 180, 10, 1),
        event("kernel", "_turn", 200, 20, 2),
        event("gpu_memset", "Memset (Device)", 190, 4, 3),
        event("kernel", "lost", 230, 1),
    ]
    assert kernels_of(events) == [
        GpuKernel("nvjet", "0F0.0", pytest.approx(180e-6), pytest.approx(10e-6)),
        GpuKernel("_turn", "0B0.0", pytest.approx(200e-6), pytest.approx(20e-6)),
        GpuKernel("Memset (Device)", "", pytest.approx(190e-6), pytest.approx(4e-6)),
        GpuKernel("lost", "", pytest.approx(230e-6), pytest.approx(1e-6)),
    ]


def test_the_ops_of_a_real_step_are_in_its_trace() -> None:
    with engine_of(CASE, HOST) as engine:
        engine.executor.observer = OpEvents()
        traced = trace(lambda: engine.step(CASE.batch(), 1e-4), HOST)
        calls = [str(call.op) for call in engine.executor.spans.calls]
        kinds = [call.op.kind for call in engine.executor.spans.calls]
    spans = [each for each in traced.events if str(each.get("name")).startswith("op ")]
    middle = [each["ts"] + each["dur"] / 2 for each in sorted(spans, key=lambda each: each["ts"])]
    assert [ops_of(traced.events)(time) for time in middle] == calls
    assert [GpuKernel("", op, 0.0, 0.0).kind for op in calls] == kinds
    assert traced.seconds * 1e6 > sum(each["dur"] for each in spans)


def test_a_row_has_the_case_and_its_times() -> None:
    """On a host no kernel is seen, so all of the step is idle."""
    row = breakdown_row(CASE, HOST, 1)
    assert (row["model"], row["slices"], row["kernels"]) == ("small", 2, 0)
    assert row["idle"] == row["step_seconds"] > 0
    assert row["seconds"] > 0

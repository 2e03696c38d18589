"""`penstock bench gpu`: what a GPU makes of whole and of sliced steps, in time and in memory."""

from collections.abc import Iterator
from json import dumps
from typing import Any

from penstock.arch.config import model
from penstock.bench.run import BenchSettings, Result, Say, read_bench_settings
from penstock.errors import ShapeError


def measure_gpu(say: Say) -> Result:
    """Attention, steps of one rank, and ranks that share the GPU; told row by row."""
    settings = read_bench_settings()["gpu"]
    _need_gpu()
    attention = [_told(say, row) for row in _attention(settings)]
    steps = [_told(say, row) for row in _steps(settings)]
    shared = [_told(say, row) for row in _shared(settings)]
    errors = [row["memory_error"] for row in (*steps, *shared)]
    return {
        "target": settings["target"],
        "memory_target": settings["memory_target"],
        "slices_cost": max(_slices_cost(steps)),
        "memory_error": max(errors),
        "attention": attention,
        "steps": steps,
        "shared": shared,
    }


def _need_gpu() -> None:
    from penstock.bench.measure.gpu import has_gpu

    if not has_gpu():
        raise ShapeError(
            "this machine has no CUDA device", hint="run it where there is one; see `bench run`"
        )


def _told(say: Say, row: Result) -> Result:
    say(dumps(row))
    return row


def _attention(settings: BenchSettings) -> Iterator[Result]:
    from penstock.bench.measure.gpu_attention import attention_times

    config, count = model(settings["model"]), settings["slices"]
    for tokens in settings["tokens"]:
        lengths = (tokens // count,) * count
        yield attention_times(config.heads, config.kv_heads, config.head_size, lengths)


def _steps(settings: BenchSettings) -> Iterator[Result]:
    from penstock.bench.measure.gpu import GpuCase, measure_alone

    for tokens in settings["tokens"]:
        for schedule, slices in _both(settings):
            case = GpuCase(settings["model"], tokens, schedule, slices=slices)
            yield measure_alone(case, settings["steps"])


def _shared(settings: BenchSettings) -> Iterator[Result]:
    from penstock.bench.measure.gpu import GpuCase, measure_together

    shared: dict[str, Any] = settings["shared"]
    for schedule, slices in _both(settings):
        sizes = (shared["ranks"], shared["microbatches"], slices)
        yield measure_together(GpuCase(settings["model"], shared["tokens"], schedule, *sizes), 1)


def _both(settings: BenchSettings) -> tuple[tuple[str, int], tuple[str, int]]:
    return (settings["whole"], 1), (settings["sliced"], settings["slices"])


def _slices_cost(steps: list[Result]) -> Iterator[float]:
    """What slices add to a step, at each length."""
    for whole, sliced in zip(steps[::2], steps[1::2]):
        yield sliced["seconds"] / whole["seconds"] - 1

"""`penstock bench gpu`: what a GPU makes of whole and of sliced steps, in time and in memory, next
to a model that PyTorch compiles."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from json import dumps
from typing import TYPE_CHECKING, NamedTuple

from penstock.arch.config import ModelConfig
from penstock.arch.presets import model
from penstock.bench.run import BenchSettings, Result, Say, read_bench_settings
from penstock.errors import ShapeError, nearest

if TYPE_CHECKING:
    from penstock.bench.measure.gpu_case import GpuCase
    from penstock.bench.measure.gpu_offload import OffloadCase


class GpuChoice(NamedTuple):
    """What of the settings is measured; nothing given is all of it."""

    parts: Sequence[str] = ()
    models: Sequence[str] = ()
    tokens: Sequence[int] = ()
    slices: Sequence[int] = ()
    steps: int | None = None

    def takes(self, case: "GpuCase") -> bool:
        return (
            (not self.models or case.model in self.models)
            and (not self.tokens or case.tokens in self.tokens)
            and (not self.slices or case.slices in self.slices)
        )


def measure_gpu(choice: GpuChoice, say: Say) -> Result:
    """The chosen parts, told row by row."""
    settings = {**read_bench_settings()["gpu"]}
    if choice.steps is not None:
        settings["steps"] = choice.steps
    parts = _chosen_parts(choice.parts)
    cases = _chosen_cases(settings, choice)
    _need_gpu()
    results: Result = {key: settings[key] for key in ("memory_target", "prediction_target")}
    for part in parts:
        rows = GPU_PARTS[part](settings, cases)
        results[part] = [_told(say, {"part": part, **row}) for row in rows]
    return results


def _chosen_parts(given: Sequence[str]) -> Sequence[str]:
    for part in given:
        if part not in GPU_PARTS:
            raise ShapeError(f"no part is called {part!r}", hint=nearest(part, list(GPU_PARTS)))
    return given or USUAL


def _chosen_cases(settings: BenchSettings, choice: GpuChoice) -> list["GpuCase"]:
    cases = list(step_cases(settings))
    found = [case for case in cases if choice.takes(case)]
    if not found:
        known = dict.fromkeys(f"{case.model} at {case.tokens} tokens" for case in cases)
        raise ShapeError(
            "no case has this model, length and number of slices",
            hint=f"there are {', '.join(known)}",
        )
    return found


def step_cases(settings: BenchSettings) -> Iterator["GpuCase"]:
    """Every step that is measured on one rank; equal models and lengths follow each other."""
    for entry in settings["cases"]:
        for slices in entry["slices"]:
            yield _case(settings, entry, slices)


def _case(
    settings: BenchSettings,
    entry: BenchSettings,
    slices: int,
    devices: int = 1,
    microbatches: int = 1,
) -> "GpuCase":
    from penstock.bench.measure.gpu_case import GpuCase

    return GpuCase(
        entry["model"],
        bench_model(settings, entry["model"]),
        entry["tokens"],
        settings["sliced" if slices > 1 else "whole"],
        devices,
        microbatches,
        slices,
        tuple(entry.get("transforms", ())),
    )


def bench_model(settings: BenchSettings, name: str) -> ModelConfig:
    """A model of the settings, or a registered one."""
    own = settings["models"].get(name)
    if own is None:
        return model(name)
    return replace(model(own["base"]), **{key: own[key] for key in own if key != "base"})


def _need_gpu() -> None:
    from penstock.bench.measure.gpu import has_gpu

    if not has_gpu():
        raise ShapeError(
            "this machine has no CUDA device", hint="run it where there is one; see `bench run`"
        )


def _told(say: Say, row: Result) -> Result:
    say(dumps(row))
    return row


def _attention(settings: BenchSettings, cases: Sequence["GpuCase"]) -> Iterator[Result]:
    from penstock.bench.measure.gpu_attention import attention_times

    own = settings["attention"]
    config, count = bench_model(settings, own["model"]), own["slices"]
    for tokens in own["tokens"]:
        lengths = (tokens // count,) * count
        yield attention_times(config.heads, config.kv_heads, config.head_size, lengths)


def _steps(settings: BenchSettings, cases: Sequence["GpuCase"]) -> Iterator[Result]:
    from penstock.bench.measure.compiled_step import compiled_making
    from penstock.bench.measure.gpu import first_gpu
    from penstock.bench.measure.gpu_rows import compared_rows

    wanted = {
        (entry["model"], entry["tokens"], int(slices)): ratio
        for entry in settings["cases"]
        for slices, ratio in entry.get("wanted", {}).items()
    }
    for row in compared_rows(
        cases, compiled_making(first_gpu()), settings["steps"], settings["first"]
    ):
        yield {**row, "wanted": wanted.get((row["model"], row["tokens"], row["slices"]))}


def _shared(settings: BenchSettings, cases: Sequence["GpuCase"]) -> Iterator[Result]:
    from penstock.bench.measure.gpu import measure_together

    own = settings["shared"]
    for slices in (1, own["slices"]):
        yield measure_together(_case(settings, own, slices, own["ranks"], own["microbatches"]), 1)


def _breakdown(settings: BenchSettings, cases: Sequence["GpuCase"]) -> Iterator[Result]:
    from penstock.bench.measure.gpu import first_gpu
    from penstock.bench.measure.gpu_rows import breakdown_rows

    yield from breakdown_rows(cases, first_gpu(), settings["first"])


def _offload(settings: BenchSettings, cases: Sequence["GpuCase"]) -> Iterator[Result]:
    from penstock.bench.measure.gpu import first_gpu
    from penstock.bench.measure.gpu_offload import offload_row

    own = settings["offload"]
    for tokens in own["tokens"]:
        case = _offload_case(settings, own, tokens)
        row = offload_row(case, first_gpu(), settings["steps"], settings["first"], own["copied"])
        yield {**row, "wanted": own["wanted"], "wanted_bandwidth": own["bandwidth"]}


def _offload_long(settings: BenchSettings, cases: Sequence["GpuCase"]) -> Iterator[Result]:
    from penstock.bench.measure.gpu import first_gpu
    from penstock.bench.measure.gpu_offload import long_row

    own = settings["offload_long"]
    case = _offload_case(settings, own, own["tokens"])
    yield long_row(case, first_gpu(), own["steps"], own["host_share"])


def _offload_case(settings: BenchSettings, own: BenchSettings, tokens: int) -> "OffloadCase":
    from penstock.bench.measure.gpu_offload import OffloadCase

    sizes = bench_model(settings, own["model"])
    return OffloadCase(own["schedule"], own["model"], sizes, tokens, own["slices"])


Part = Callable[[BenchSettings, Sequence["GpuCase"]], Iterator[Result]]

GPU_PARTS: dict[str, Part] = {
    "attention": _attention,
    "steps": _steps,
    "shared": _shared,
    "breakdown": _breakdown,
    "offload": _offload,
    "offload-long": _offload_long,
}
USUAL = ("attention", "steps", "shared")
"""Parts that are measured where none is chosen."""

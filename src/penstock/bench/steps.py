"""The part of `penstock bench run` that times whole steps of a model."""

from collections.abc import Iterator, Mapping
from json import dumps
from typing import TYPE_CHECKING, Any

from penstock.arch.config import ModelConfig
from penstock.bench.run import BenchSettings, Result, Say
from penstock.errors import PenstockError
from penstock.plan.slices import align, equal_flops_of_model
from penstock.schedules import build

if TYPE_CHECKING:
    from penstock.bench.measure.real import MeasuredRun, TrainingWork
    from penstock.run.launch.worker_pool import Crew


def measure_real(settings: BenchSettings, say: Say) -> Result:
    """Every schedule at every length; told row by row, since the whole takes minutes."""
    from penstock.bench.measure.real import TrainingWork
    from penstock.run.launch.worker_pool import Crew

    model = ModelConfig(**settings["model"], element_bytes=4)
    found: list[Result] = []
    with Crew(settings["ranks"]) as crew:
        for tokens in settings["tokens"]:
            work = TrainingWork(model, tokens, settings["microbatches"])
            rows: list[Result] = []
            for row in (*_ours(crew, work, settings), *_theirs(crew, work, settings)):
                rows.append(row)
                say(dumps({"tokens": tokens, **row}))
            found.append({"tokens": tokens, **step_ratios(rows, settings), "rows": rows})
    sizes = {key: settings[key] for key in ("ranks", "microbatches", "steps", "model")}
    return {**sizes, "target": settings["target"], "lengths": found}


def step_ratios(rows: list[Result], settings: BenchSettings) -> Result:
    """The ratios that matter, of runs that came to an end."""
    done = [row for row in rows if row["reason"] is None]
    theirs = [row for row in done if row["side"] == "torch"]
    ours = [row for row in done if row["side"] == "penstock"]
    if not theirs or not ours:
        return {"ratio": None, "same_ratio": None, "prediction_error": None}
    best = min(ours, key=lambda row: row["seconds"])
    rival = min(theirs, key=lambda row: row["seconds"])
    first, second = settings["same"]
    return {
        "best": best["schedule"],
        "slices": best["slices"],
        "rival": rival["schedule"],
        "ratio": rival["seconds"] / best["seconds"],
        "same_ratio": _seconds(theirs, first) / _seconds(ours, second),
        "prediction_error": max(abs(row["prediction_error"]) for row in ours),
    }


def _seconds(rows: list[Result], schedule: str) -> float:
    found = [row["seconds"] for row in rows if row["schedule"] == schedule]
    return float(found[0]) if found else float("nan")


def _ours(crew: "Crew", work: "TrainingWork", settings: BenchSettings) -> Iterator[Result]:
    from penstock.bench.measure.real import join_ranks, run_ours

    for entry in settings["ours"]:
        for slices in entry.get("slices", [1]):
            wanted = slices if "slices" in entry else None
            sizes = {"devices": settings["ranks"], "microbatches": work.microbatches}
            row = {"side": "penstock", "schedule": entry["schedule"], "slices": slices}
            try:
                schedule = build(entry["schedule"], **sizes, slices=wanted)
                lengths = align(equal_flops_of_model(work.model, work.length, slices))
                parts = crew.run(run_ours, work, schedule, lengths, settings["steps"])
            except PenstockError as error:
                yield {**row, "reason": error.message}
                continue
            yield {**row, "reason": None, **_figures(join_ranks(schedule, parts))}


def _theirs(crew: "Crew", work: "TrainingWork", settings: BenchSettings) -> Iterator[Result]:
    from penstock.bench.measure.real import join_ranks, run_theirs

    for entry in settings["rivals"]:
        chunks = entry.get("chunks", 1)
        row = {"side": "torch", "schedule": entry["name"], "slices": 1, "chunks": chunks}
        try:
            parts = crew.run(run_theirs, work, entry["name"], chunks, settings["steps"])
        except PenstockError as error:
            yield {**row, "reason": error.message}
            continue
        measured = join_ranks(None, parts)
        yield {**row, "reason": None, "seconds": measured.seconds, "loss": measured.loss}


def _figures(measured: "MeasuredRun") -> Mapping[str, Any]:
    error = measured.predicted / measured.makespan - 1
    return {**measured._asdict(), "prediction_error": error}

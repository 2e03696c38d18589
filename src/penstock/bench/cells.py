"""The part of `penstock bench run` that times whole steps with several ranks on each device."""

from collections.abc import Callable, Iterator, Sequence
from json import dumps
from typing import TYPE_CHECKING

from penstock.arch.config import ModelConfig
from penstock.arch.mesh_shape import MeshShape
from penstock.bench.run import BenchSettings, Result, Say
from penstock.errors import PenstockError, ShapeError
from penstock.plan.slices import align, equal_flops_of_model
from penstock.schedules import build

if TYPE_CHECKING:
    from penstock.bench.measure.real import Timed, TrainingWork
    from penstock.run.launch.worker_pool import Crew


def measure_cells(settings: BenchSettings, say: Say) -> Result:
    """Every mesh at every length, and PyTorch on as many ranks; told row by row."""
    from penstock.bench.measure.real import TrainingWork
    from penstock.run.launch.worker_pool import Crew

    model = ModelConfig(**settings["model"], element_bytes=4)
    found: list[Result] = []
    with Crew(settings["ranks"]) as crew:
        for tokens in settings["tokens"]:
            work, rows = TrainingWork(model, tokens, settings["microbatches"]), []
            for row in (*_theirs(crew, work, settings), *_ours(crew, work, settings)):
                rows.append(row)
                say(dumps({"tokens": tokens, **row}))
            found.append({"tokens": tokens, "rows": with_ratios(rows)})
    sizes = {key: settings[key] for key in ("ranks", "microbatches", "steps", "model")}
    return {**sizes, "lengths": found}


def with_ratios(rows: list[Result]) -> list[Result]:
    """Each row of ours with how many times longer the fastest of PyTorch's takes; None where none
    of them came to an end."""
    done = [row for row in rows if row["reason"] is None]
    theirs = [row["seconds"] for row in done if row["side"] == "torch"]
    return [
        {**row, "ratio": min(theirs) / row["seconds"]}
        if theirs and row["reason"] is None and row["side"] == "penstock"
        else {**row, "ratio": None}
        for row in rows
    ]


def _ours(crew: "Crew", work: "TrainingWork", settings: BenchSettings) -> Iterator[Result]:
    from penstock.bench.measure.cells import run_our_cells

    for entry in settings["ours"]:
        slices, cell = entry.get("slices"), MeshShape.parse(entry["mesh"]).cell
        devices = devices_of(settings["ranks"], cell.ranks)
        sizes = {"devices": devices, "microbatches": work.microbatches, "slices": slices}
        schedule = build(entry["schedule"], **sizes)
        lengths = align(equal_flops_of_model(work.model, work.length, slices or 1))
        job = (work, schedule, lengths, cell, settings["steps"])
        row = {"side": "penstock", "slices": 1, **entry}
        yield {**row, **_measured(crew, run_our_cells, job)}


def _theirs(crew: "Crew", work: "TrainingWork", settings: BenchSettings) -> Iterator[Result]:
    from penstock.bench.measure.torch_cells import run_their_cells

    for entry in settings["rivals"]:
        devices_of(settings["ranks"], entry["tensor"])
        row = {"side": "torch", "slices": 1, "schedule": entry["name"]}
        job = (work, entry["name"], entry["tensor"], settings["steps"])
        mesh = f"tensor={entry['tensor']}"
        yield {**row, "mesh": mesh, **_measured(crew, run_their_cells, job)}


def devices_of(ranks: int, each: int) -> int:
    """How many devices of so many ranks there are."""
    if ranks % each:
        raise ShapeError(
            f"{ranks} ranks cannot be divided into cells of {each}",
            hint=f"give --ranks a multiple of {each}",
        )
    return ranks // each


def _measured(crew: "Crew", job: Callable[..., "Timed"], arguments: Sequence[object]) -> Result:
    """What a run took and arrived at, or why it did not."""
    from penstock.bench.measure.real import join_ranks

    try:
        measured = join_ranks(None, crew.run(job, *arguments))
    except PenstockError as error:
        return {"reason": error.message}
    return {"reason": None, "seconds": measured.seconds, "loss": measured.loss}

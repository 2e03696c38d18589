"""The part of `penstock bench run` that measures how much communication braided pairs hide.

Tensor-parallel ranks wait for each other's sums in every layer. Two ops that run as a pair take
turns at these waits. So the same schedule is run twice, with its pairs and with their ops one after
the other: what is computed is the same to the last bit, and the difference is what pairs hide.
"""

from collections.abc import Iterator
from dataclasses import replace
from json import dumps
from statistics import mean, median
from typing import TYPE_CHECKING

from penstock.arch.config import ModelConfig
from penstock.arch.mesh_shape import MeshShape
from penstock.bench.cells import devices_of
from penstock.bench.run import BenchSettings, Result, Say
from penstock.core.schedule import Schedule
from penstock.schedules import build

if TYPE_CHECKING:
    from penstock.bench.measure.cell_waits import WaitingSteps


def measure_pairs(settings: BenchSettings, say: Say) -> Result:
    """Every schedule at every length, those that have pairs once more without; told row by row."""
    from penstock.bench.measure.cell_waits import run_waiting
    from penstock.bench.measure.real import TrainingWork
    from penstock.run.launch.worker_pool import Crew

    model = ModelConfig(**settings["model"], element_bytes=4)
    cell, rows = MeshShape.parse(settings["mesh"]).cell, []
    devices = devices_of(settings["ranks"], cell.ranks)
    with Crew(settings["ranks"]) as crew:
        for tokens in settings["tokens"]:
            work = TrainingWork(model, tokens, settings["microbatches"])
            for order, schedule in orders(settings, devices):
                found = crew.run(run_waiting, work, schedule, cell, settings["steps"])
                rows.append({"schedule": schedule.name, "order": order, "tokens": tokens})
                rows[-1] |= waits_of(found)
                say(dumps(rows[-1]))
    sizes = {key: settings[key] for key in ("ranks", "mesh", "microbatches", "steps", "model")}
    return {**sizes, "rows": rows}


def orders(settings: BenchSettings, devices: int) -> Iterator[tuple[str, Schedule]]:
    """What is run, and how the ops of a pair are."""
    for entry in settings["schedules"]:
        sizes = {"devices": devices, "microbatches": settings["microbatches"]}
        schedule = build(entry["schedule"], **sizes, chunks=entry.get("chunks"))
        yield "in turn" if schedule.pairs else "no pairs", schedule
        if schedule.pairs:
            yield "one by one", replace(schedule, pairs=(), derived={})


def waits_of(found: "list[WaitingSteps]") -> Result:
    """A step takes as long as its slowest rank; waits are those of a rank on average."""
    seconds = median(max(step) for step in zip(*(each.seconds for each in found)))
    waited = mean(each.waited for each in found)
    loss = found[0].loss
    return {"seconds": seconds, "waited": waited, "share": waited / seconds, "loss": loss}

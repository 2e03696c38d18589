"""What a bench would need, compared with what the machine has before a process starts."""

from collections.abc import Sequence

from penstock.arch.config import ModelConfig
from penstock.arch.layer_split import split_layers
from penstock.bench.run import BenchSettings
from penstock.cost.workload import Workload
from penstock.errors import ShapeError
from penstock.plan.memory import footprints
from penstock.run.process.machine import Machine
from penstock.schedules import build


def refuse_bench(settings: BenchSettings, parts: Sequence[str], machine: Machine) -> None:
    """Refuse parts with more processes or more bytes than there is room for."""
    schedule = settings["real"]["ours"][0]["schedule"]
    for part in parts:
        chosen = settings[part]
        processes = chosen.get("ranks", 1)
        machine.refuse(processes, 0)  # before a schedule of so many devices is made
        if chosen.get("core_each"):
            _refuse_shared_cores(part, processes, machine)
        if "tokens" in chosen:
            machine.refuse(processes, _predicted_bytes(chosen, schedule))


def _refuse_shared_cores(part: str, processes: int, machine: Machine) -> None:
    """Refuse to time ranks that take turns on a core, where the time of a step is what counts."""
    if processes > machine.cores:
        raise ShapeError(
            f"{part}: {processes} processes need as many cores, here are {machine.cores:g}",
            hint="give --ranks fewer, take a machine with more cores, or start anyway with --force",
        )


def _predicted_bytes(chosen: BenchSettings, schedule: str) -> int:
    """What all processes hold at most with whole sequences of the longest length."""
    model = ModelConfig(**chosen["model"], element_bytes=4)
    devices, microbatches = chosen.get("ranks", 1), chosen.get("microbatches", 1)
    built = build(schedule, devices=devices, microbatches=microbatches)
    lengths = ((max(chosen["tokens"]),),) * microbatches
    layers = tuple(map(len, split_layers(model.layers, built.shape.stages)))
    return sum(device.total for device in footprints(built, Workload(model, lengths, layers)))

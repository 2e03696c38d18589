"""What a run begins with: a checkpoint where there is one, else given or initial weights."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from penstock.draw.words import count_of
from penstock.errors import RunError
from penstock.model.io.huggingface import read_weights
from penstock.run.program.layout import Layout
from penstock.run.step.engine import Engine
from penstock.run.step.state import Entry, begin, entries, publish
from penstock.train.checkpoint import Found
from penstock.train.config.save import save
from penstock.train.loop.learning_rate import plan_notes
from penstock.train.loop.mesh_picture import mesh_picture
from penstock.train.loop.trainer import Trainer
from penstock.train.loop.warnings import cautions


def ready_trainer(trainer: Trainer, per_machine: int) -> list[str]:
    """Make a trainer ready for its first step; returns what a person should be told of it. Every
    machine has so many ranks."""
    settings = trainer.settings
    if trainer.engine.mesh.rank == 0:
        save(settings)
    with trainer.tracker.gathers_files("look for a checkpoint"):
        found = _found(trainer)
    trainer.tracker.at = "prepares its weights"
    if found is not None:
        trainer.resume(found)
    elif settings.model.huggingface:
        trainer.tracker.handles_files("reads the weights")
        _load_weights(trainer.engine, Path(settings.model.huggingface))
    else:
        begin(trainer.engine, settings.run.seed)
    origin = _origin(found, settings.model.huggingface)
    if found is not None:
        origin += plan_notes(settings, found.state, found.step)
    plan = trainer.engine.plan
    layers = [len(stage) for stage in plan.layout.split]
    warned = cautions(settings, plan.schedule, layers, trainer.held_out)
    drawn = mesh_picture(trainer.engine.mesh.grid, per_machine)
    return [_introduction(trainer), *drawn, *origin, *warned]


def _found(trainer: Trainer) -> Found | None:
    """The checkpoint to go on from; the run's own comes first, so that a restart goes on."""
    resume = trainer.settings.checkpoint.resume
    if resume == "never":
        trainer.checkpoints.set_aside()
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is damaged is among the notes
        own = trainer.checkpoints.newest()
        return own if own or resume == "auto" else _given(trainer, resume)


def _given(trainer: Trainer, resume: str) -> Found:
    found = trainer.checkpoints.newest_of(resume)
    if found is None:
        raise RunError(
            f"checkpoint.resume is {resume!r}, but no checkpoint is there",
            hint="give a folder with step-N folders in it",
        )
    return found


def _introduction(trainer: Trainer) -> str:
    """What is about to be trained, and how it is spread."""
    plan, replicas = trainer.engine.plan, trainer.engine.mesh.replicas
    lengths = plan.lengths[0]
    copies = f"{replicas} replicas of " if replicas > 1 else ""
    devices = _devices(plan.schedule.shape.devices, plan.layout.cell.ranks)
    cut = trainer.settings.data.policy == "pack" and len(lengths) > 1
    slices = f", slices of {_sum(lengths)} tokens" if cut else ""
    return (
        f"{plan.schedule.name}: {copies}{devices}, "
        f"{_layers(plan.layout)}{slices}, "
        f"{plan.layout.model.parameters:,} parameters"
    )


def _layers(layout: Layout) -> str:
    """How they are divided into stages."""
    if layout.cut_at_attention:
        return f"{layout.model.layers} layers cut at their attention"
    return f"{_sum([*map(len, layout.split)])} layers"


def _sum(parts: Sequence[int]) -> str:
    """How a number is made up.

    >>> _sum([2, 2, 2, 2]), _sum([18, 14]), _sum([32])
    ('4 x 2', '18 + 14', '32')
    """
    if len(parts) > 1 and len({*parts}) == 1:
        return f"{len(parts)} x {parts[0]}"
    return " + ".join(map(str, parts))


def _origin(found: Found | None, folder: str) -> list[str]:
    """Where the weights come from, if they are not new."""
    if found is None:
        return [f"begins with the weights in {folder}"] if folder else []
    writer = found.state["writer"]
    devices, replicas = _devices(writer["devices"], writer.get("cell", 1)), writer["replicas"]
    copies = f"{replicas} replicas of " if replicas > 1 else ""
    return [
        *(f"warning: {what}; an older checkpoint is used" for what in found.damaged),
        f"continues from step {found.step}, stored by {writer['schedule']} on {copies}{devices}",
    ]


def _devices(devices: int, ranks: int) -> str:
    """Devices of a pipeline, and how many ranks work together as one of them.

    >>> _devices(1, 1), _devices(2, 4)
    ('1 device', '2 devices of 4 ranks each')
    """
    cells = f" of {ranks} ranks each" if ranks > 1 else ""
    return count_of(devices, "device") + cells


def _load_weights(engine: Engine, folder: Path) -> None:
    """Fill this rank's stages from a Hugging Face folder."""
    places: dict[str, list[Entry]] = {}
    for entry in entries(engine):
        places.setdefault(entry.name, []).append(entry)  # a tied weight may be here twice
    for name, tensor in read_weights(folder, set(places)):
        for place in places[name]:
            place.take(tensor)
    publish(engine)

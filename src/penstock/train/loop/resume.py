"""What a run begins with: a checkpoint where there is one, else given or initial weights."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import expected_shapes
from penstock.draw.words import count_of
from penstock.errors import RunError
from penstock.model.io.huggingface import read_config, read_weights
from penstock.model.io.peft_files import read_adapters
from penstock.run.program.layout import Layout
from penstock.run.step.state import Entry, all_entries, fill_initial, frozen_entries, publish
from penstock.train.checkpoint import Found
from penstock.train.config.save import save
from penstock.train.loop.frozen_base import refuse_other_base
from penstock.train.loop.learning_rate import plan_notes
from penstock.train.loop.mesh_picture import mesh_picture
from penstock.train.loop.trainer import Trainer
from penstock.train.loop.warnings import cautions, slow_type


def ready_trainer(trainer: Trainer, per_machine: int) -> list[str]:
    """Make a trainer ready for its first step; returns what a person should be told of it. Every
    machine has so many ranks. Settings with which a run cannot go on do not replace its own."""
    settings = trainer.settings
    with trainer.tracker.gathers_files("look for a checkpoint"):
        found = _found(trainer)
    trainer.tracker.at = "prepares its weights"
    _fill_weights(trainer, found)
    if trainer.engine.mesh.rank == 0:
        save(settings)
    origin = _origin(found, settings.model.huggingface)
    if found is not None:
        origin += plan_notes(settings, found.state, found.step)
    plan = trainer.engine.plan
    layers = [len(stage) for stage in plan.layout.split]
    warned = cautions(settings, plan.schedule, layers, trainer.held_out)
    warned += slow_type(settings.run.dtype, trainer.engine.device.type)
    drawn = mesh_picture(trainer.engine.mesh.grid, per_machine)
    return [_introduction(trainer), *drawn, *origin, *warned]


def _fill_weights(trainer: Trainer, found: Found | None) -> None:
    """What is trained comes from a checkpoint where there is one; what is frozen is in none."""
    settings, engine = trainer.settings, trainer.engine
    if found is not None:
        refuse_other_base(settings, found.state)
    wanted = frozen_entries(engine) if found else all_entries(engine)
    if settings.model.huggingface and wanted:
        trainer.tracker.handles_files("reads the weights")
        wanted = _load_weights(wanted, Path(settings.model.huggingface))
    if settings.lora.start and found is None:
        wanted = _load_adapters(wanted, Path(settings.lora.start), engine.layout.model)
    fill_initial(engine, wanted, settings.run.seed)
    if found is not None:
        trainer.resume(found)
    else:
        publish(engine)


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
        f"{plan.layout.model.parameters:,} parameters{_trained(plan.layout.model)}"
    )


def _trained(model: ModelConfig) -> str:
    """How many of them are trained, where that is not all."""
    if model.trains_all:
        return ""
    share = model.trained_parameters / model.parameters
    return f", of which {model.trained_parameters:,} ({share:.2%}) are trained"


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


def _load_weights(wanted: Sequence[Entry], folder: Path) -> list[Entry]:
    """Fill this rank's stages from a Hugging Face folder; returns what that does not have: adapters
    are new."""
    stored, places = expected_shapes(read_config(folder)), _by_name(wanted)
    for name, tensor in read_weights(folder, places.keys() & stored.keys()):
        for place in places[name]:
            place.take(tensor)
    return [entry for entry in wanted if entry.name not in stored]


def _load_adapters(wanted: Sequence[Entry], folder: Path, model: ModelConfig) -> list[Entry]:
    """Fill adapters from a folder of PEFT; returns what that does not have."""
    places, loaded = _by_name(wanted), set[str]()
    for name, tensor in read_adapters(folder, model):
        loaded.add(name)
        for place in places.get(name, ()):
            place.take(tensor)
    return [entry for entry in wanted if entry.name not in loaded]


def _by_name(wanted: Sequence[Entry]) -> dict[str, list[Entry]]:
    """A tied weight may be here twice."""
    places: dict[str, list[Entry]] = {}
    for entry in wanted:
        places.setdefault(entry.name, []).append(entry)
    return places

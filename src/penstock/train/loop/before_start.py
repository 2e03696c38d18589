"""Everything about a run that can be refused before a process starts.

A rank that refuses has imported torch, met the others and claimed a folder; its message comes half
a minute late and once for each rank, or from a library. The launcher knows all of it at once.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch

from penstock.cluster.profile_file import read_machine
from penstock.cost.stage_workload import workload_for
from penstock.cost.workload import Workload
from penstock.data.open_source import chat_template, source_files
from penstock.data.records.files import TABLE_ENDINGS
from penstock.data.tokenizer import tokenizer
from penstock.errors import RunError, ShapeError
from penstock.lower import lower
from penstock.model.io.huggingface import refuse_foreign
from penstock.model.io.inventory import refuse_names
from penstock.model.io.peft_files import refuse_other_adapters, refuse_other_folder
from penstock.model.io.safetensors_files import locate
from penstock.plan.cell_memory import SharedWeights, run_bytes, run_host_bytes
from penstock.run.process.environment import RankPlace
from penstock.run.process.machine import Machine
from penstock.run.program.layout import Layout
from penstock.run.program.sharded_schedule import TWO_BUFFERS, schedule_for, shard_weights
from penstock.run.program.step_end import with_host_updates
from penstock.run.program.unsupported import refuse_unsupported
from penstock.run.step.host_state import refuse_host_stages
from penstock.run.step.shardings import sharding_named
from penstock.run.step.validation import validation_named
from penstock.train.config.settings import Settings
from penstock.train.loop.export import kept_files
from penstock.train.loop.former_model import refuse_other_model
from penstock.train.loop.plan_choice import refuse_policy
from penstock.train.loop.setup import RunSetup, layout_of
from penstock.train.report.gathered import gathered_stages

AUTOMATIC = ("auto", "never")
"""Words in the place of a folder to resume from."""


def refuse_start(settings: Settings, setup: RunSetup) -> None:
    """Refuse a run that could not begin, or that would lose its result at the end."""
    try:
        refuse_unsupported(lower(setup.schedule))
        refuse_policy(settings, setup)
        _refuse_step_end(settings, setup)
        _refuse_missing_packages(settings)
        _refuse_device(settings)
        _refuse_paths(settings, setup)
        refuse_other_model(settings, setup.model)
    except RunError as refusal:  # nothing has gone wrong yet: it is the request that cannot be met
        raise ShapeError(refusal.message, hint=refusal.hint) from None


def _refuse_step_end(settings: Settings, setup: RunSetup) -> None:
    """Refuse updates that the schedule, the model or the ranks leave no way to make."""
    sharding, stages = sharding_named(settings.mesh.shard), setup.host_stages
    layout = Layout.of(setup.model, setup.schedule, settings.batch.length, layers=setup.layers)
    refuse_host_stages(stages, layout, sharding)
    end = with_host_updates(validation_named(settings.optimizer.validation).end, stages)
    end(schedule_for(setup.schedule, sharding.buffers), reduced=True)


def refuse_too_large(settings: Settings, setup: RunSetup, machine: Machine) -> None:
    """Refuse more bytes than this machine has free; those of a GPU are not the host's, but what
    waits there for a GPU is."""
    if on_host(settings):
        processes = setup.mesh.ranks(setup.schedule.shape.devices)
        machine.refuse(processes, predicted_bytes(settings, setup))
    elif away := _host_bytes(settings, setup):
        machine.refuse(setup.mesh.ranks(setup.schedule.shape.devices), away)


def refuse_share(settings: Settings, machine: Machine, here: RankPlace) -> None:
    """Refuse the ranks that somebody else has started on this machine, if it has no room for them;
    the first of them asks, and says so for all."""
    if here.local_rank:
        return
    machine.refuse(here.local_world, 0)  # before a schedule of so many devices is made
    open_choice = settings.plan.auto or settings.data.policy == "auto"
    if on_host(settings) and not open_choice:  # both are chosen for the room that there is
        held = predicted_bytes(settings, layout_of(settings, here.world))
        machine.refuse(here.local_world, held * here.local_world // here.world)


def predicted_bytes(settings: Settings, setup: RunSetup) -> int:
    """What all processes of a run hold at most, torch itself apart."""
    shared = weights_of_ranks(settings, setup)
    rows = settings.batch.rows
    return run_bytes(setup.schedule, _workload(setup), setup.mesh, rows, shared)


def _host_bytes(settings: Settings, setup: RunSetup) -> int:
    """What GPUs have on the host at most, of all processes."""
    shared = weights_of_ranks(settings, setup)
    return run_host_bytes(setup.schedule, _workload(setup), setup.mesh, settings.batch.rows, shared)


def _workload(setup: RunSetup) -> Workload:
    return workload_for(setup.schedule.shape, setup.model, setup.lengths, setup.layers)


def weights_of_ranks(settings: Settings, setup: RunSetup) -> SharedWeights:
    """How the run's ranks divide what several of them hold."""
    mesh, states = settings.mesh, validation_named(settings.optimizer.validation).states
    if mesh.shard == "none":
        return SharedWeights(states=states, on_host=setup.host_stages)
    owners = mesh.shard_ranks or mesh.replicas * mesh.sequence
    if mesh.shard == "optimizer":
        return SharedWeights(owners, states=states)
    gathered = gathered_stages(shard_weights(setup.schedule, TWO_BUFFERS))
    return SharedWeights(owners, gathered, states)


def on_host(settings: Settings) -> bool:
    """Whether a run computes on processors."""
    device = settings.run.device
    return device == "cpu" or (device == "auto" and not torch.cuda.is_available())


def _refuse_missing_packages(settings: Settings) -> None:
    """Packages of extras that the settings ask for."""
    needed = {
        "safetensors": (
            "hf",
            settings.model.huggingface or settings.checkpoint.export or settings.lora.start,
        ),
        "tokenizers": ("hf", settings.data.tokenizer != "byte"),
        "tensorboard": ("log", settings.log.tensorboard),
        "wandb": ("wandb", settings.log.wandb),
        "ortools": ("solve", settings.plan.policy == "improving"),
    }
    _refuse_missing(needed)


def _refuse_missing(needed: Mapping[str, tuple[str, object]]) -> None:
    """Refuse packages that are wanted and not there, with the extra that has each."""
    for package, (extra, wanted) in needed.items():
        if wanted and find_spec(package) is None:
            raise ShapeError(
                f"the settings need the package {package}, which is not installed",
                hint=f"pip install 'penstock[{extra}]'",
            )


def _refuse_device(settings: Settings) -> None:
    if settings.run.device == "cuda" and not torch.cuda.is_available():
        raise ShapeError(
            "run.device is cuda, but this machine has no CUDA device",
            hint='set run.device to "auto" or "cpu"',
        )


def _refuse_paths(settings: Settings, setup: RunSetup) -> None:
    """Files and folders that are not there, or cannot be written to."""
    if settings.model.huggingface:
        folder = Path(settings.model.huggingface)
        refuse_names(folder, replace(setup.model, lora=None), locate(folder))
    if settings.lora.start:
        refuse_other_adapters(Path(settings.lora.start), setup.model)
    if settings.data.tokenizer != "byte":
        tokenizer(settings.data.tokenizer, settings.data.end_token)
    if settings.plan.profile:
        read_machine(Path(settings.plan.profile))
    chat_template(settings.data)
    for paths in filter(None, (settings.data.paths, settings.data.held_out_paths)):
        files = source_files(settings.data, paths)
        if settings.data.source == "records" and any(
            path.suffix in TABLE_ENDINGS for path in files
        ):
            _refuse_missing({"pyarrow": ("tables", True)})
    if settings.checkpoint.resume not in AUTOMATIC and not os.path.isdir(
        settings.checkpoint.resume
    ):
        raise ShapeError(
            f"checkpoint.resume is {settings.checkpoint.resume!r}, which is not a folder",
            hint='give "auto", "never" or a folder with step-N folders in it',
        )
    if settings.checkpoint.export:
        _refuse_export(settings)


def _refuse_export(settings: Settings) -> None:
    """Refuse a folder that could not be written at the end of the run."""
    folder = Path(settings.checkpoint.export)
    try:
        if settings.lora.rank:
            refuse_other_folder(folder)
        else:
            refuse_foreign(folder, kept_files(settings))
        above = next(path for path in folder.absolute().parents if os.path.exists(path))
    except OSError as error:
        raise ShapeError(
            f"checkpoint.export is {str(folder)[:80]!r}: {error.strerror}",
            hint="give another folder",
        ) from None
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise ShapeError(
            f"checkpoint.export is {str(folder)!r}, but {str(above)!r} is not a folder that can be "
            "written to",
            hint="give a folder that can be made",
        )

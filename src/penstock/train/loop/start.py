"""Starts the ranks of a training run on this machine, after everything that can be refused was."""

from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.errors import ShapeError, shown
from penstock.run.launch.launcher import Limits, launch
from penstock.run.process.environment import refuse_environment
from penstock.run.process.machine import Machine
from penstock.train.config.save import SETTINGS_FILE
from penstock.train.config.settings import Settings
from penstock.train.loop.auto_policy import policy_before_start
from penstock.train.loop.auto_start import planned_before_start, rank_count
from penstock.train.loop.before_start import refuse_start, refuse_too_large
from penstock.train.loop.run_lock import claim_run
from penstock.train.loop.setup import layout_of


def start(
    settings: Settings,
    config: Path,
    ranks: int,
    words: Sequence[str],
    say: Callable[[str], None],
    machine: Machine | None,
) -> int:
    """Launch the ranks, each as `train CONFIG` with these words, and return the exit code of the
    run; a machine refuses what it has no room for."""
    count = ranks or rank_count(settings)
    if count < 1:
        raise ShapeError(
            f"{count} processes: pipeline.devices is {settings.pipeline.devices}",
            hint="give -n 1 or more, or set pipeline.devices",
        )
    if not config.is_file():
        raise ShapeError(
            f"{shown(str(config))} is not a file, but every rank reads it",
            hint="write the configuration into a file",
        )
    if machine is not None:
        machine.refuse(count, 0)  # before a schedule of so many devices is made
    settings = planned_before_start(settings, count, say)
    settings = policy_before_start(settings, count, say)
    setup = layout_of(settings, count)
    refuse_start(settings, setup)
    if machine is not None:
        refuse_too_large(settings, setup, machine)
    refuse_environment()
    folder = Path(settings.run.directory)
    with claim_run(settings):
        pass  # the first rank holds this; what is refused here has started nothing
    saved = folder / SETTINGS_FILE
    say(f"starting {count} {'process' if count == 1 else 'processes'}; settings in {saved}")
    # a rank is not asked again for what is settled here, with less memory free by then
    command = ["train", str(config), "--force", *words]
    limits = Limits(settings.watch.patience, settings.watch.frozen)
    return launch(command, count, limits=limits, logs=folder / "logs")

"""Starts the ranks of a training run on this machine, after everything that can be refused was."""

from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.errors import RunError, ShapeError
from penstock.run.launch import launch
from penstock.train.config import dump
from penstock.train.layout import layout_of
from penstock.train.settings import Settings

RESOLVED = "config.toml"


def start(
    settings: Settings, config: Path, ranks: int, changes: Sequence[str], say: Callable[[str], None]
) -> int:
    """Launch the ranks and return the exit code of the run."""
    count = ranks or settings.pipeline.devices * settings.pipeline.replicas
    if not count:
        raise ShapeError(
            "the number of processes is not known: pipeline.devices is 0",
            hint="give -n, or set pipeline.devices",
        )
    layout = layout_of(settings, count)
    folder = Path(settings.run.directory)
    _write(folder, dump(settings))
    shape = layout.schedule.shape
    say(
        f"{layout.schedule.name}: {shape.devices} devices x {layout.replicas} replica(s), "
        f"{shape.stages} stages of {', '.join(map(str, layout.layers))} layers, "
        f"slices of {', '.join(map(str, layout.lengths[0]))} tokens; "
        f"{layout.model.parameters:,} parameters; settings in {folder / RESOLVED}"
    )
    command = ["train", str(config), *(word for change in changes for word in ("--set", change))]
    return launch(command, count, patience=settings.watch.patience, logs=folder / "logs")


def _write(folder: Path, text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RESOLVED).write_text(text)
    except OSError as error:
        raise RunError(
            f"cannot write {str(folder / RESOLVED)!r}: {error.strerror}",
            hint="choose another run.directory",
        ) from None

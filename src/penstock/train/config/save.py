"""Settings written back: as the file of a run, and as what its processes must agree on."""

from pathlib import Path
from typing import Any

from penstock.errors import ShapeError
from penstock.files import save_text
from penstock.train.config.settings import Settings
from penstock.train.config.toml_text import written

LOCAL = (("run", "threads"), ("log", "tensorboard"), ("log", "wandb"))
"""Keys that may differ between the processes of a run."""

SETTINGS_FILE = "config.toml"
"""File in a run's folder with all that was resolved."""


def tables(settings: Settings) -> dict[str, dict[str, Any]]:
    """Section to key to value, as plain values; keys whose value is None are left out."""
    return settings.model_dump(exclude_none=True)


def dump(settings: Settings) -> str:
    """The settings as a file with every key; `loads` makes the same settings of it."""
    return written(tables(settings))


def save(settings: Settings) -> Path:
    """Write the settings into the folder of their run, and say where."""
    path = Path(settings.run.directory) / SETTINGS_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ShapeError(
            f"cannot make {str(path.parent)!r}: {error.strerror}", hint="set run.directory"
        ) from None
    save_text(path, dump(settings))
    return path


def shared_settings(settings: Settings) -> str:
    """All that the processes of a run must agree on, as a file."""
    return written(
        {
            name: {key: value for key, value in keys.items() if (name, key) not in LOCAL}
            for name, keys in tables(settings).items()
        }
    )

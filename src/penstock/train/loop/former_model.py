"""Whether a run goes on with the model that it began with.

Checkpoints hold tensors. When the model has changed, the first of them that does not fit is
refused by its name, which nobody wrote; what was written, and changed, is a key.
"""

from dataclasses import fields
from pathlib import Path

from penstock.arch.config import ModelConfig
from penstock.arch.huggingface_keys import SIZE_KEYS
from penstock.arch.parameters import expected_shapes
from penstock.errors import PenstockError, ShapeError
from penstock.train.checkpoint.folders import steps
from penstock.train.config.load import load
from penstock.train.config.save import SETTINGS_FILE
from penstock.train.config.settings import Settings
from penstock.train.loop.setup import architecture


def refuse_other_model(settings: Settings, model: ModelConfig) -> None:
    """Refuse a model whose tensors are not those of the run that is gone on with."""
    run = _former_run(settings)
    former = _model_of(run / SETTINGS_FILE) if run else None
    if former is None or _is_same(former, model):
        return
    names = [field.name for field in fields(ModelConfig) if field.name != "element_bytes"]
    pairs = [(name, getattr(former, name), getattr(model, name)) for name in names]
    changed = [
        f"{_key(name, settings)} is {now}, but was {before}"
        for name, before, now in pairs
        if now != before
    ]
    raise ShapeError(
        f"the run in {str(run)!r} has another model: {'; '.join(changed)}",
        hint="change it back, give this run a run.directory of its own, or set checkpoint.resume "
        'to "never"',
    )


def _is_same(former: ModelConfig, model: ModelConfig) -> bool:
    """Whether tensors of one are those of the other; alpha of LoRA changes no shape, but all that
    adapters compute."""
    return former.lora == model.lora and expected_shapes(former) == expected_shapes(model)


def _key(name: str, settings: Settings) -> str:
    """What a number of the model is called where the user wrote it."""
    if name == "lora":
        return name
    if settings.model.huggingface:
        return f"{SIZE_KEYS.get(name, name)} of {settings.model.huggingface}"
    return f"model.{name}"


def _former_run(settings: Settings) -> Path | None:
    """Folder of the run whose checkpoint is gone on from."""
    own, resume = Path(settings.run.directory), settings.checkpoint.resume
    if resume == "never":
        return None
    if _has_steps(own / "checkpoints"):
        return own
    return Path(resume).parent if resume != "auto" and _has_steps(Path(resume)) else None


def _has_steps(folder: Path) -> bool:
    try:
        return bool(steps(folder))
    except OSError:
        return False


def _model_of(file: Path) -> ModelConfig | None:
    """The model of saved settings; None where they are gone or of another version."""
    try:
        return architecture(load(file))
    except PenstockError:
        return None

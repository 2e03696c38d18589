"""Whether a run with adapters goes on with the weights that they were trained beside.

Checkpoints of such a run have adapters alone; what is frozen is read again from where the run
began. Other weights there would be met by no error, only by a worse model. So checkpoints say what
the weights were: a digest of the files' names, sizes, beginnings and ends, which takes no time.
"""

from collections.abc import Mapping
from hashlib import sha256
from os import SEEK_SET
from pathlib import Path
from typing import Any

from penstock.errors import RunError
from penstock.files.regular import open_regular
from penstock.train.config.settings import Settings

FROZEN_STATE = "frozen"
"""What the digest is called in the state of a checkpoint."""
DIGESTED_BYTES = 1 << 20
"""Bytes of a file's beginning, with names and shapes of its tensors, and of its end."""


def frozen_state(settings: Settings) -> dict[str, str]:
    """What a checkpoint says of the weights that are not in it; nothing where it has all."""
    return {FROZEN_STATE: _digest(settings)} if settings.lora.rank else {}


def refuse_other_base(settings: Settings, state: Mapping[str, Any]) -> None:
    """Refuse to go on with adapters that were trained beside other weights."""
    now, then = frozen_state(settings).get(FROZEN_STATE), state.get(FROZEN_STATE)
    if now == then:
        return
    where = settings.model.huggingface or f"run.seed {settings.run.seed}"
    what, hint = f"adapters of other weights than {where} gives now", "give the former weights"
    if then is None:
        what, hint = "all weights, and no adapters", "leave lora.rank out"
    elif now is None:
        what, hint = "adapters, and no other weights", "set lora.rank as the run had it"
    raise RunError(f"the checkpoint has {what}", hint=f"{hint}, or begin a run of its own")


def _digest(settings: Settings) -> str:
    folder, found = settings.model.huggingface, sha256()
    if not folder:
        return f"seed {settings.run.seed}"
    for path in sorted(Path(folder).glob("*.safetensors")):
        with open_regular(path) as file:
            begin = file.read(DIGESTED_BYTES)
            size = path.stat().st_size
            file.seek(max(0, size - DIGESTED_BYTES), SEEK_SET)
            found.update(f"{path.name} {size} ".encode() + begin + file.read(DIGESTED_BYTES))
    return found.hexdigest()

"""Where modules to verify come from: a Python file of one's own, or the folder of a decoder.

A file has three functions, under the names that `examples/own_modules.py` uses:

    make_stages()             the modules of all stages
    loss_of(output, targets)  the loss of a microbatch
    batch_of(step)            inputs and targets of a batch

and may have `weight_of(targets)`. A folder has the `config.json` of a decoder of transformers: its
stages are its own layers, with random weights in float64 and random words.
"""

from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import Module

from penstock.core.schedule import Schedule
from penstock.data.batch import IGNORE
from penstock.errors import ShapeError
from penstock.model.decoders.decoder_stages import decoder_stages
from penstock.model.decoders.sliced_stage import take_slices
from penstock.model.decoders.token_loss import token_count, token_loss
from penstock.model.stages.module_stage import Loss
from penstock.run.process.rendezvous import Connection
from penstock.run.program.plain_modules import module_homes
from penstock.run.step.module_batch import Weight
from penstock.run.step.module_pipeline import ModulePipeline
from penstock.verify.own_pipeline import PipelineVerdict, verify

NEEDED_FUNCTIONS = ("make_stages", "loss_of", "batch_of")
ROWS, TOKENS = 2, 12
"""Of a microbatch of words; a schedule with many slices gets more tokens."""


class ModuleSource(NamedTuple):
    """What is verified."""

    stages: Sequence[Module]
    loss: Loss
    weight: Weight | None
    batch: Callable[[], Any]


def verify_modules(connection: Connection, path: str, schedule: Schedule) -> PipelineVerdict:
    """What every process does: a pipeline of the modules, compared with one process."""
    source = source_of(Path(path), schedule)
    pipeline = ModulePipeline(schedule, source.stages, source.loss, weight=source.weight)
    try:
        return verify(pipeline, *source.batch())
    finally:
        pipeline.close()


def refuse_misfit(path: str, schedule: Schedule) -> None:
    """Refuse what the schedule cannot run before any process is started."""
    source = source_of(Path(path), schedule)
    module_homes(schedule, len(source.stages))
    if max(schedule.shape.slices) > 1:
        take_slices(source.stages)


def source_of(path: Path, schedule: Schedule) -> ModuleSource:
    """Modules, loss and batch of a file or a folder."""
    if path.is_dir():
        return _of_folder(path, schedule)
    return _of_file(path)


def _of_file(path: Path) -> ModuleSource:
    spec = spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ShapeError(
            f"{path} is neither a Python file nor a folder",
            hint="give a file with make_stages(), loss_of(output, targets) and batch_of(step)",
        )
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    if missing := [name for name in NEEDED_FUNCTIONS if not callable(getattr(module, name, None))]:
        raise ShapeError(
            f"{path} has no function {', '.join(missing)}",
            hint="see examples/own_modules.py for all of them",
        )
    stages = list(module.make_stages())
    return ModuleSource(
        stages, module.loss_of, getattr(module, "weight_of", None), lambda: module.batch_of(0)
    )


def _of_folder(path: Path, schedule: Schedule) -> ModuleSource:
    stages = decoder_stages(path, schedule.shape.stages, keywords={"dtype": torch.float64})
    first: Any = stages[0]
    words, shape = int(first.model.config.vocab_size), schedule.shape
    size = (ROWS * shape.microbatches, max(TOKENS, 3 * max(shape.slices)))

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(words, size, generator=torch.Generator().manual_seed(0))
        labels = tokens.roll(-1, 1)
        labels[:, -1] = IGNORE
        labels[0, 2:] = IGNORE
        return tokens, labels

    return ModuleSource(stages, token_loss, token_count, batch)

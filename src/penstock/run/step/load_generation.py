"""A trained model from its files, ready to say something: one rank, one stage, for checking."""

from pathlib import Path

import torch

from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.model.io.huggingface import read_config, read_weights
from penstock.model.stages.decoder import DecoderStage
from penstock.model.stages.generation import Generation
from penstock.run.program.layout import Layout
from penstock.run.step.stages import empty_weights, stage_of

ONE_STAGE = Schedule.of("one stage", Shape(1, 1, (1,)), [[("F", 0, 0, 0), ("B", 0, 0, 0)]])


def load_generation(folder: Path, longest: int, dtype: torch.dtype = torch.float32) -> Generation:
    """The model that a folder of safetensors holds, for a sequence of so many tokens."""
    model, cpu = read_config(folder), torch.device("cpu")
    layout = Layout.of(model, ONE_STAGE, longest, dtype=dtype)
    weights = empty_weights(layout, 0, cpu)
    mains = weights.named(weights.main)
    for name, values in read_weights(folder, [*weights.layout.distinct]):
        mains[name].copy_(values)
    weights.publish()
    stage = stage_of(layout, 0, cpu)
    assert isinstance(stage, DecoderStage)  # one stage has whole layers
    return Generation(stage, stage.views(weights.value), longest)

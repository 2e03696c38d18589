"""Everything that the ranks of a run have to agree on before they start."""

from dataclasses import dataclass
from functools import cached_property

import torch

from penstock.arch.config import ModelConfig
from penstock.arch.layer_split import split_layers
from penstock.arch.parameter_layout import ParameterLayout, lay_out
from penstock.arch.parameters import between_parameters, expected_shapes, stage_parameters
from penstock.core.homes import weight_homes
from penstock.core.program import Program
from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.lower import lower_for_running
from penstock.model.layers.qkv_projection import qkv_width
from penstock.model.stages.between_attentions import attention_width


@dataclass(frozen=True)
class RunPlan:
    """A model, a schedule, and how the one is cut for the other."""

    model: ModelConfig
    schedule: Schedule
    lengths: tuple[tuple[int, ...], ...]
    """Tokens of each slice of each microbatch."""
    layers: tuple[int, ...] = ()
    """Layers of each stage; as even as can be where nothing is said."""
    dtype: torch.dtype = torch.float32
    """What is computed in. Weights and gradients are kept in 32 bits at least."""
    rows: int = 1
    """Sequences side by side in a microbatch."""

    def __post_init__(self) -> None:
        slices = tuple(len(lengths) for lengths in self.lengths)
        if slices != self.schedule.shape.slices:
            raise ShapeError(
                f"the sequences are cut into {slices} slices, but {self.schedule.name} has "
                f"{self.schedule.shape.slices}",
                hint="give every slice of every microbatch a length",
            )
        if self.cut_at_attention:
            self._refuse_other_cuts()

    def _refuse_other_cuts(self) -> None:
        """Every second stage is the attention of one layer, and nothing else is without weights."""
        shape, layers = self.schedule.shape, self.model.layers
        if shape.stages != 2 * layers + 1 or shape.weightless != set(range(1, 2 * layers, 2)):
            raise ShapeError(
                f"{self.schedule.name} has {shape.stages} stages, {len(shape.weightless)} of them "
                f"without weights, but the model has {layers} layers",
                hint="a model cut at its attention has a stage for each attention, and one before, "
                "between and behind them",
            )

    @property
    def cut_at_attention(self) -> bool:
        """Whether attention is a stage of its own, which any device may run."""
        return bool(self.schedule.shape.weightless)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Features that move over each boundary between two stages."""
        model = self.model
        if not self.cut_at_attention:
            return (model.hidden,) * (self.schedule.shape.stages - 1)
        return (qkv_width(model) + model.hidden, attention_width(model) + model.hidden) * (
            model.layers
        )

    @property
    def main(self) -> torch.dtype:
        """What weights and gradients are kept in."""
        return torch.promote_types(self.dtype, torch.float32)

    @cached_property
    def program(self) -> Program:
        return lower_for_running(self.schedule)

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(sum(lengths) for lengths in self.lengths)

    @cached_property
    def split(self) -> tuple[range, ...]:
        return split_layers(self.model.layers, self.schedule.shape.stages, self.layers)

    @cached_property
    def homes(self) -> dict[int, int]:
        """The device of each stage."""
        found = weight_homes(self.schedule)
        for stage, devices in found.items():
            if len(devices) > 1:
                raise ShapeError(
                    f"stage {stage} of {self.schedule.name} lives on devices "
                    f"{', '.join(map(str, devices))}, but the runtime keeps one copy of a stage",
                    hint="take a schedule in which every stage has one device",
                )
        return {stage: devices[0] for stage, devices in found.items()}

    @cached_property
    def names(self) -> dict[str, int]:
        """The place of every parameter along the model; a tied head is the embedding."""
        return {name: place for place, name in enumerate(expected_shapes(self.model))}

    def layout(self, stage: int) -> ParameterLayout:
        """Where the parameters of a stage lie; the last one has a head of its own, tied or not."""
        if self.cut_at_attention:
            return lay_out(between_parameters(self.model, stage // 2))
        stages = self.schedule.shape.stages
        return lay_out(stage_parameters(self.model, self.split[stage], stage, stages))

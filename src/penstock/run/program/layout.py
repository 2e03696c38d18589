"""What stays the same for a whole run: the model, its cut into stages, and where they live."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from penstock.arch.attention_cut import HEADS, Crossing, crossings
from penstock.arch.block_rules import refuse_cut
from penstock.arch.cell_shape import ONE_RANK, CellShape
from penstock.arch.config import ModelConfig
from penstock.arch.layer_split import split_layers
from penstock.arch.layers.parameter import Parameter
from penstock.arch.lora import refuse_sharded_target
from penstock.arch.parameter_layout import ParameterLayout
from penstock.arch.parameters import (
    HEAD,
    between_parameters,
    layers_on_shards,
    own_experts,
    refuse_running,
    shard_layout,
    stage_layout,
    stage_parameters,
    trained_names,
)
from penstock.core.homes import weight_homes
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.model.stages.carried_loads import carried_elements


@dataclass(frozen=True)
class Layout:
    """A model over the devices of a pipeline; every step plan of a run keeps to it."""

    model: ModelConfig
    devices: int
    homes: tuple[int | None, ...]
    """The device of each stage's weights; None for stages without weights."""
    longest: int
    """Most tokens that a sequence may have."""
    layers: tuple[int, ...] = ()
    """Layers of each stage; as even as can be where nothing is said."""
    dtype: torch.dtype = torch.float32
    """What is computed in. Weights and gradients are kept in 32 bits at least."""
    cell: CellShape = ONE_RANK
    """The ranks of each device."""
    on_shards: tuple[str, ...] = ()
    """Vocabulary layers that are cut into a shard for each device: embedding and head, or none. The
    weights of a shard have a number behind those of all stages."""
    to_attention: str = HEADS
    """What attention is given where it is a stage of its own (arch/attention_cut.py)."""

    def __post_init__(self) -> None:
        refuse_running(self.model)
        refuse_experts(self.model, cut=self.cut_at_attention, on_shards=self.on_shards)
        refuse_sharded_target(self.model.lora, HEAD in self.on_shards)
        if self.cut_at_attention:
            refuse_cut(self.model)
            self._refuse_other_cuts()
        if self.model.lora is not None and self.to_attention != HEADS:
            raise ShapeError(
                "attention is given the weights of its projection, which have adapters of LoRA",
                hint="take a schedule that gives attention queries, keys and values",
            )
        if self.on_shards:
            self._refuse_other_shards()

    @classmethod
    def of(
        cls,
        model: ModelConfig,
        schedule: Schedule,
        longest: int,
        *,
        layers: Sequence[int] = (),
        dtype: torch.dtype = torch.float32,
        cell: CellShape = ONE_RANK,
    ) -> "Layout":
        """The layout that a schedule has; without `layers`, cut as the schedule is made for."""
        homes, shape = homes_of(schedule), schedule.shape
        cut = tuple(layers) or shape.cut(model.layers)
        sizes = (model, shape.devices, homes, longest, cut)
        return cls(*sizes, dtype, cell, on_shards(shape), shape.to_attention)

    def _refuse_other_cuts(self) -> None:
        """Every second stage is the attention of one layer, and nothing else is without weights."""
        layers = self.model.layers
        weightless = {stage for stage, home in enumerate(self.homes) if home is None}
        if self.stages != 2 * layers + 1 or weightless != set(range(1, 2 * layers, 2)):
            raise ShapeError(
                f"the schedule has {self.stages} stages, {len(weightless)} of them without "
                f"weights, but the model has {layers} layers",
                hint="a model cut at its attention has a stage for each attention, and one before, "
                "between and after them",
            )

    def _refuse_other_shards(self) -> None:
        """Between attentions and for one end of a tied weight there are no shards."""
        if self.cut_at_attention:
            raise ShapeError(
                "the vocabulary of a model that is cut at its attention cannot be on shards",
                hint="take a schedule without vocabulary passes, or one of whole layers",
            )
        if self.model.tied and len(self.on_shards) == 1:
            raise ShapeError(
                f"{self.on_shards[0]} is on shards, but the weight that it is tied to is not",
                hint="take a schedule with both pairs of passes, E and D, S and T",
            )

    @property
    def stages(self) -> int:
        return len(self.homes)

    @property
    def loss_home(self) -> int:
        """Whose weights the loss is counted with: the last stage, or the first shard."""
        return self.stages if HEAD in self.on_shards else self.stages - 1

    @property
    def cut_at_attention(self) -> bool:
        """Whether attention is a stage of its own, which any device may run."""
        return None in self.homes

    @property
    def ties(self) -> tuple[tuple[int, int], ...]:
        """Stages that share a gradient: the first and the last one of a tied model. A shard has the
        same words of both, and shares them with itself. What is frozen has no gradient."""
        if not self.model.tied or not self.model.trains_all:
            return ()
        numbers = range(self.stages, self.stages + self.devices)
        return tuple(zip(numbers, numbers)) if self.on_shards else ((0, self.stages - 1),)

    def model_of(self, tensor: int) -> ModelConfig:
        """The model as a rank sees it, by its number among those that share the matrices."""
        return self.model.share(tensor, self.cell.tensor) if self.cell.tensor > 1 else self.model

    def crossings(self, tensor: int = 0) -> tuple[Crossing, ...]:
        """What a rank moves over each boundary."""
        if not self.cut_at_attention:
            carried = carried_elements(self.model, self.dtype.itemsize)
            return (Crossing(weights=carried),) * (self.stages - 1)
        return crossings(self.model_of(tensor), self.to_attention) * self.model.layers

    @property
    def main(self) -> torch.dtype:
        """What weights and gradients are kept in."""
        return torch.promote_types(self.dtype, torch.float32)

    @cached_property
    def split(self) -> tuple[range, ...]:
        return split_layers(self.model.layers, self.stages, self.layers)

    @cached_property
    def local_pairs(self) -> frozenset[int]:
        """Pairs of brackets on different stages of one device."""
        if self.model.subsampling is None:
            return frozenset()
        return self.model.subsampling.local_pairs(self.split, dict(enumerate(self.homes)))

    @cached_property
    def names(self) -> dict[str, int]:
        """The place of every parameter that is trained along the model; a tied head is the
        embedding."""
        return {name: place for place, name in enumerate(trained_names(self.model))}

    def stages_of(self, device: int) -> list[int]:
        """Stages whose weights a device holds, and its shard behind them."""
        shard = [self.stages + device] if self.on_shards else []
        return [stage for stage, home in enumerate(self.homes) if home == device] + shard

    def parameters(self, stage: int, tensor: int = 0, replica: int = 0) -> ParameterLayout:
        """Where the parameters of a stage lie on a rank, by its number among those that share the
        matrices and, where replicas share experts, by its replica. The last stage has a head of
        its own, tied or not, but where it has the embedding too. Numbers behind those of stages are
        shards."""
        if stage >= self.stages:
            device, ranks = range(stage - self.stages, self.devices), self.cell.tensor
            return shard_layout(self.model, self.on_shards, device, range(tensor, ranks))
        sharers = self.cell.experts
        own = own_experts(self._parameters(stage), replica % sharers, sharers)
        return stage_layout(self.model, own, tensor, self.cell.tensor)

    def _parameters(self, stage: int) -> Mapping[str, Parameter]:
        if self.cut_at_attention:
            return between_parameters(self.model, stage // 2)
        found = stage_parameters(self.model, self.split[stage], stage, self.stages)
        return {name: each for name, each in found.items() if name not in self.on_shards}


def refuse_experts(model: ModelConfig, *, cut: bool, on_shards: Collection[str]) -> None:
    """Refuse a model with experts where their loads cannot go from layer to layer, or where the
    auxiliary loss would not be counted."""
    if model.mixture is None:
        return
    if cut:
        raise ShapeError(
            "the schedule cuts layers at their attention, but the model has experts, whose loads "
            "go from layer to layer",
            hint="take a schedule of whole layers",
        )
    if HEAD in on_shards:
        raise ShapeError(
            "the head is on shards of all devices, but the model has experts, whose auxiliary loss "
            "is counted with the head of the last stage",
            hint="take a schedule without vocabulary passes S and T",
        )


def on_shards(shape: Shape) -> tuple[str, ...]:
    """Vocabulary layers that a schedule has on all devices."""
    return layers_on_shards(shape.embed, shape.loss)


def homes_of(schedule: Schedule) -> tuple[int | None, ...]:
    """The device of each stage's weights, which must be one."""
    found = weight_homes(schedule)
    for stage, devices in found.items():
        if len(devices) > 1:
            raise ShapeError(
                f"stage {stage} of {schedule.name} is on devices "
                f"{', '.join(map(str, devices))}, but the runtime keeps one copy of a stage",
                hint="take a schedule in which every stage has one device",
            )
    return tuple(found[s][0] if s in found else None for s in range(schedule.shape.stages))

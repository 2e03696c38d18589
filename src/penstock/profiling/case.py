"""What is profiled: a model, its tokens and slices, on a kind of device, in a type of number."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.arch.config import ModelConfig
from penstock.arch.families import from_huggingface, to_huggingface
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import FormatError, ShapeError, shown
from penstock.estimate.layout import BYTES_OF
from penstock.estimate.model_value import MODEL_NAMES
from penstock.plan.slices import align, equal_flops_of_model

KINDS_OF_STAGE = ("first", "middle", "last")
"""Stages of a profiled step: with the embedding, with layers alone, with the head."""
WIDTHS = (0.5, 1.0, 2.0)
"""Widths of matrices that are measured, as many times those of the model."""
TORCH_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


@dataclass(frozen=True)
class ProfileCase:
    """One model at one length."""

    name: str
    sizes: ModelConfig
    tokens: int
    slices: int = 1
    precision: str = "bf16"
    widths: tuple[float, ...] = WIDTHS

    def __post_init__(self) -> None:
        if self.tokens < 2 * self.slices:
            raise ShapeError(
                f"{self.tokens} tokens cannot be cut into {self.slices} slices",
                hint=f"give {2 * self.slices} tokens or more",
            )
        if self.sizes.layers < len(KINDS_OF_STAGE):
            raise ShapeError(
                f"{self.name} has {self.sizes.layers} layers",
                hint="a profile has a first, a middle and a last stage: take 3 layers or more",
            )

    @property
    def model(self) -> ModelConfig:
        """The model in its type of number."""
        return replace(self.sizes, element_bytes=BYTES_OF[self.precision])

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of the slices: of equal FLOPs, as a run cuts them."""
        if self.slices == 1:
            return (self.tokens,)
        return tuple(align(equal_flops_of_model(self.model, self.tokens, self.slices)))

    def in_pipeline_of(self, devices: int) -> "ProfileCase":
        """With as many layers on a stage as a pipeline of so many devices has: caches hold more of
        a few layers than of many."""
        kinds = len(KINDS_OF_STAGE)
        layers = min(self.sizes.layers, kinds * -(-self.sizes.layers // devices))
        return replace(self, sizes=replace(self.sizes, layers=layers))

    def refuse_unlike_layers(self) -> None:
        """Refuse to profile layers that differ: what a step makes of kernels is found by layer."""
        if len(self.sizes.kinds) > 1 or self.sizes.subsampling is not None:
            raise ShapeError(
                f"layers of {self.name} differ, and a profile is of what one layer takes",
                hint="profile a model of as wide layers that are alike: estimates of this one take "
                "that profile too",
            )

    def record(self) -> dict[str, Any]:
        """What a profile says of its case."""
        return {
            "model": self.name,
            "sizes": model_sizes(self.sizes),
            "config": to_huggingface(self.sizes),
            "tokens": self.tokens,
            "lengths": list(self.lengths),
            "precision": self.precision,
        }


def profiled_case(record: Mapping[str, Any]) -> ProfileCase:
    """The case that a profile is of."""
    try:
        case = record["case"]
        model, slices = _profiled_model(case), len(case["lengths"])
        return ProfileCase(case["model"], model, case["tokens"], slices, case["precision"])
    except (KeyError, TypeError, AttributeError):
        hint = "make it again with `penstock profile`"
        raise FormatError("the profile does not say what it is of", hint=hint) from None


def _profiled_model(case: Mapping[str, Any]) -> ModelConfig:
    """With its experts and windows, which sizes alone do not tell. Older profiles have sizes."""
    if "config" in case:
        return from_huggingface(case["config"])
    return ModelConfig(**case["sizes"])


def case_of_steps(record: Mapping[str, Any]) -> ProfileCase:
    """The case of its steps, which has fewer layers where ranks of a host were profiled."""
    case = profiled_case(record)
    layers = record["case"].get("step_layers", case.sizes.layers)
    if not (isinstance(layers, int) and len(KINDS_OF_STAGE) <= layers <= case.sizes.layers):
        hint = "make it again with `penstock profile`"
        raise FormatError(f"the profiled step has {shown(layers)} layers", hint=hint)
    return replace(case, sizes=replace(case.sizes, layers=layers))


def model_sizes(model: ModelConfig) -> dict[str, Any]:
    """A model as the sizes that `penstock estimate` takes."""
    sizes: dict[str, Any] = {name: getattr(model, name) for name in MODEL_NAMES}
    return sizes | {"gated": model.gated, "tied": model.tied}


def three_stages(slices: int) -> Schedule:
    """One microbatch on one device: forwards, then input and weight gradients of each slice, so
    that every kind of stage and every pass has ops of its own."""
    stages = range(len(KINDS_OF_STAGE))
    return Schedule.of("three stages", Shape(1, len(stages), (slices,)), [[*_lane(slices)]])


def _lane(slices: int) -> Iterator[tuple[str, int, int, int]]:
    stages = range(len(KINDS_OF_STAGE))
    for slice in range(slices):
        yield from (("F", stage, 0, slice) for stage in stages)
    for slice in reversed(range(slices)):
        for stage in reversed(stages):
            yield from (("I", stage, 0, slice), ("W", stage, 0, slice))

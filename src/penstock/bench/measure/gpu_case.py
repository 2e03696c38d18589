"""What is measured on a GPU: a model, a length, and a schedule over some devices."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from penstock.arch.config import ModelConfig
from penstock.core.schedule import Schedule
from penstock.data.batch import Microbatch
from penstock.plan.slices import align, equal_flops_of_model
from penstock.run.observe.utilisation import model_flops, peak_flops
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.schedules import build
from penstock.transform import recompute_all

TRANSFORMS: Mapping[str, Callable[[Schedule], Schedule]] = {"recompute_all": recompute_all}
"""What a case may do to its schedule."""


class GpuCase(NamedTuple):
    """A model, a length, and a schedule."""

    model: str
    sizes: ModelConfig
    tokens: int
    schedule: str
    devices: int = 1
    microbatches: int = 1
    slices: int = 1
    transforms: tuple[str, ...] = ()
    dtype: str = "bfloat16"

    @property
    def torch_dtype(self) -> torch.dtype:
        found: torch.dtype = getattr(torch, self.dtype)
        return found

    def config(self) -> ModelConfig:
        return replace(self.sizes, element_bytes=self.torch_dtype.itemsize)

    def built(self) -> Schedule:
        schedule = build(
            self.schedule,
            devices=self.devices,
            microbatches=self.microbatches,
            slices=self.slices if self.slices > 1 else None,
        )
        for name in self.transforms:
            schedule = TRANSFORMS[name](schedule)
        return schedule

    def plan(self) -> StepPlan:
        cut: tuple[int, ...] = (self.tokens,)
        if self.slices > 1:
            cut = align(equal_flops_of_model(self.config(), self.tokens, self.slices))
        schedule = self.built()
        layout = Layout.of(self.config(), schedule, self.tokens, dtype=self.torch_dtype)
        return StepPlan(layout, schedule, (cut,) * self.microbatches)

    def batch(self) -> list[Microbatch]:
        """Random tokens: nothing that is measured depends on what they are."""
        return [
            Microbatch(words[:, :-1], words[:, 1:], ((0,),))
            for words in (self.words(number) for number in range(self.microbatches))
        ]

    def words(self, number: int = 0) -> torch.Tensor:
        """A sequence with the label of its last token."""
        stream = torch.Generator().manual_seed(number)
        return torch.randint(0, self.sizes.vocabulary, (1, self.tokens + 1), generator=stream)

    def utilisation(self, seconds: float, device: torch.device) -> float | None:
        """The share of the device's peak that the model needs in this time."""
        flops = model_flops(self.config(), [self.tokens] * self.microbatches)
        peak = peak_flops(device)
        return flops / seconds / peak if peak else None

    def named(self) -> dict[str, Any]:
        """What a row says of its case."""
        row = self._asdict()
        del row["sizes"]
        return row

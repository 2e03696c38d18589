"""LoRA: which matrices are trained by adapters, while everything else stays as it is."""

from typing import Literal, Self

from pydantic import model_validator

from penstock.arch.lora import LAYER_TARGETS, TARGETS, Lora
from penstock.train.config.fields import MisfitError, Natural, Positive, Section, fit_value


class LoraSettings(Section):
    """Adapters of LoRA: small matrices next to those of the model, which alone are trained."""

    rank: Natural = 0
    """Rank of the adapters; 0 has none, and trains the weights of the model themselves."""
    alpha: Positive = 16.0
    """Products of adapters are multiplied by `alpha / rank`."""
    targets: tuple[Literal[TARGETS], ...] = LAYER_TARGETS  # type: ignore[valid-type]
    """Matrices of each layer that have an adapter; and `lm_head`."""
    start: str = ""
    """Folder with adapters that PEFT has saved, or a run has exported, to start from; empty starts
    with new ones."""

    @model_validator(mode="after")
    def _refuse_adapters(self) -> Self:
        fit_value(self, lambda lora: lora.adapters)
        if self.start and not self.rank:
            raise MisfitError(
                f"start is {self.start!r}, but rank is 0, so there are no adapters",
                hint="set rank to that of the adapters in the folder",
            )
        return self

    @property
    def adapters(self) -> Lora | None:
        """The numbers alone; None where the whole model is trained."""
        return Lora(self.rank, self.alpha, self.targets) if self.rank else None

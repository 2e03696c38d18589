"""Rotary positions of a model: which elements of a head they turn, by what base in which layer, and
up to which length."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from penstock.arch.rope_scaling import RopeScaling
from penstock.errors import ShapeError

if TYPE_CHECKING:
    from penstock.arch.config import ModelConfig


class RotaryRules(Protocol):
    """A model that has rotary positions; its numbers are those of `ModelConfig`."""

    head_size: int
    rotary_size: int | None
    rope_theta: float
    rope_scaling: RopeScaling | None
    local_rope_theta: float | None
    max_positions: int

    @property
    def turned_size(self) -> int:
        """Elements of a head that are turned: its first ones."""
        return self.rotary_size or self.head_size

    @property
    def longest(self) -> int | None:
        """Tokens up to which fixed frequencies are this model; None: any."""
        dynamic = self.rope_scaling is not None and self.rope_scaling.kind == "dynamic"
        return self.max_positions if dynamic else None

    def refuse_length(self, length: int) -> None:
        """Refuse sequences that dynamic frequencies would change."""
        if self.longest is None or length <= self.longest:
            return
        raise ShapeError(
            f"a sequence of {length} tokens exceeds the {self.max_positions} positions up to which "
            "dynamic rope scaling is fixed",
            hint=f"train on at most {self.longest} tokens, where it makes no difference",
        )

    def with_rope_of(self, layer: int) -> "ModelConfig":
        """The model as if all its layers had the rotary positions of one."""
        model, theta = cast("ModelConfig", self), self.local_rope_theta
        if theta is None:
            return model
        if not model.has_window(layer):
            return replace(model, local_rope_theta=None)
        return replace(model, rope_theta=theta, rope_scaling=None, local_rope_theta=None)


def refuse_rotary(model: Any) -> None:
    """Refuse heads that cannot be turned."""
    size, turned = model.head_size, model.turned_size
    if size % 2:
        raise ShapeError(
            f"head_size is {size}, but rotary positions rotate pairs of elements",
            hint="give an even head_size",
        )
    if turned % 2 or turned > size:
        raise ShapeError(
            f"rotary_size is {turned}, but rotary positions rotate pairs of the {size} elements of "
            "a head",
            hint=f"give an even number up to {size}",
        )
    if model.rope_scaling is not None:
        model.rope_scaling.refuse_head(turned)

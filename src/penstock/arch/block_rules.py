"""Layers of a model that differ: which is made of what, and how many there are of each kind.

Whoever multiplies by the number of layers asks for `kinds`: each is a model whose layers are all
alike, with the number of such layers. A model without blocks is its own only kind.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

from penstock.arch.blocks import LayerBlock
from penstock.errors import ShapeError

if TYPE_CHECKING:
    from penstock.arch.config import ModelConfig


class BlockRules(Protocol):
    """A model that has blocks; its numbers are those of `ModelConfig`."""

    layers: int
    ffn: int
    blocks: tuple[LayerBlock, ...]

    def block(self, layer: int) -> LayerBlock:
        """What a layer is made of."""
        return self.blocks[layer % len(self.blocks)] if self.blocks else LayerBlock(self.ffn)

    def attending(self, layers: Iterable[int]) -> list[int]:
        """Those of some layers that have attention."""
        if not self.blocks:
            return [*layers]
        return [layer for layer in layers if self.block(layer).attention]

    @property
    def attends(self) -> bool:
        """Whether some layer has attention."""
        return not self.blocks or any(block.attention for block in self.blocks)

    def like(self, layer: int) -> "ModelConfig":
        """The model as if all its layers were as one of them."""
        model = cast("ModelConfig", self)
        if not self.blocks:
            return model
        return _alike(model, replace(self.block(layer), fused=()))

    @cached_property
    def kinds(self) -> tuple["ModelConfig", ...]:
        """The different layers, each as a model of such layers alone."""
        return tuple(dict.fromkeys(map(self.like, range(min(self.layers, len(self.blocks) or 1)))))

    @property
    def width(self) -> int:
        """Of the MLP of a layer: where all blocks are alike it is theirs, whatever `ffn` says."""
        return self.kinds[0].ffn if len(self.kinds) == 1 else self.ffn

    @cached_property
    def attending_kind(self) -> "ModelConfig":
        """The first kind of layer that has attention; that of all where none has."""
        return next((kind for kind in self.kinds if kind.attends), self.kinds[0])

    def counts(self, layers: Iterable[int]) -> dict["ModelConfig", int]:
        """How many of some layers there are of each kind."""
        found = dict.fromkeys(self.kinds, 0)
        for layer in layers:
            found[self.like(layer)] += 1
        return found

    def total(self, name: str) -> int:
        """The sum over all layers of something that a layer has."""
        every = self.counts(range(self.layers)).items() if self.blocks else [(self, self.layers)]
        return sum(count * int(getattr(kind, name)) for kind, count in every)


@lru_cache(maxsize=1024)
def _alike(model: "ModelConfig", block: LayerBlock) -> "ModelConfig":
    found: ModelConfig = replace(model, ffn=block.ffn, blocks=(block,))
    return found


def refuse_unlike(kinds: Sequence[Any]) -> None:
    """Refuse to speak of the layer of a model whose layers differ."""
    if len(kinds) > 1:
        raise ShapeError(
            f"layers of the model are of {len(kinds)} kinds, so that no one stands for all",
            hint="ask for one of `kinds`, or for the layer by its number",
        )


def refuse_blocks(model: Any) -> None:
    """Refuse blocks beside what cannot stand in them."""
    if model.mixture is not None:
        raise ShapeError(
            "the model has blocks of different layers, and experts in every layer",
            hint="leave out blocks, or mixture",
        )


def refuse_cut(model: "ModelConfig") -> None:
    """Refuse layers that differ where layers are cut at their attention."""
    if len(model.kinds) > 1 or not model.attends:
        without = next((at for at in range(model.layers) if not model.block(at).attention), None)
        what = "layers differ" if without is None else f"layer {without} has none"
        raise ShapeError(
            f"the schedule cuts layers at their attention, but in this model {what}",
            hint="take a schedule of whole layers",
        )

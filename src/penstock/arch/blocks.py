"""One layer of a model whose layers differ: attention and an MLP, an MLP alone, or several MLPs
fused to a wider one (docs/concepts/ffn-fusion.md)."""

from dataclasses import dataclass, replace

from penstock.arch.dealing import deal
from penstock.arch.limits import LARGEST_OF_MODEL, refuse_count
from penstock.errors import ShapeError, shown


@dataclass(frozen=True)
class LayerBlock:
    """What a layer is made of."""

    ffn: int
    """Width of a token inside the MLP; of a fused one that of all its parts together."""
    attention: bool = True
    """Whether it has attention, with its norm."""
    fused: tuple[int, ...] = ()
    """Widths of the MLPs that were fused to this one, in their order; empty: it is one. Columns
    behind them are zeros that round the width up."""

    def __post_init__(self) -> None:
        refuse_count("ffn", self.ffn, LARGEST_OF_MODEL)
        if not isinstance(self.attention, bool):
            raise ShapeError(f"attention is {shown(self.attention)}", hint="give true or false")
        if not isinstance(self.fused, tuple):
            raise ShapeError(f"fused is {shown(self.fused)}", hint="give a list of widths")
        for width in self.fused:
            refuse_count("fused", width, LARGEST_OF_MODEL)
        if sum(self.fused) > self.ffn:
            raise ShapeError(
                f"MLPs of {', '.join(map(str, self.fused))} columns ({sum(self.fused)} together) "
                f"are fused to one of {self.ffn}",
                hint="ffn is at least the sum of the widths that are fused",
            )
        if self.fused and self.attention:
            raise ShapeError(
                f"a layer with attention has {len(self.fused)} fused MLPs",
                hint="MLPs are fused where no attention is between them",
            )

    def share(self, index: int, of: int) -> "LayerBlock":
        """What rank `index` of `of` that share the matrices has."""
        return replace(self, ffn=len(deal(self.ffn, index, of)), fused=())

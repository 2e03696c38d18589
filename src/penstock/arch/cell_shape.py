"""How many ranks share the work of a device of the schedule, and how."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple, get_args

from penstock.errors import ShapeError

Norms = Literal["scattered", "replicated"]
NORMS: tuple[Norms, ...] = get_args(Norms)


class CellPlace(NamedTuple):
    """Where a rank stands in its cell: its number along each axis."""

    tensor: int = 0
    ulysses: int = 0
    ring: int = 0


FIRST_PLACE = CellPlace()


@dataclass(frozen=True)
class CellShape:
    """The size of a cell along each of its axes."""

    tensor: int = 1
    """Ranks that share the matrices."""
    ulysses: int = 1
    """Ranks that share the tokens of a slice, and exchange them for heads in attention."""
    ring: int = 1
    """Ranks that share the tokens of a slice, and pass keys and values round in attention."""
    norms: Norms = "scattered"
    """What tensor ranks hold between the blocks of a layer: their share of the tokens, or all."""
    experts: int = 1
    """Replicas of the cell that share the experts of a layer, each with some of them."""

    def __post_init__(self) -> None:
        for axis in ("tensor", "ulysses", "ring", "experts"):
            if getattr(self, axis) < 1:
                raise ShapeError(
                    f"{axis} is {getattr(self, axis)}", hint="an axis has at least one rank"
                )

    @property
    def text(self) -> str:
        """Axes of more than one rank.

        >>> CellShape(tensor=2, ring=4).text
        'ring 4 x tensor 2'
        """
        sizes = {axis: getattr(self, axis) for axis in ("ring", "ulysses", "tensor")}
        return " x ".join(f"{axis} {size}" for axis, size in sizes.items() if size > 1)

    @property
    def sequence(self) -> int:
        """Ranks that share the tokens of a slice."""
        return self.ulysses * self.ring

    @property
    def ranks(self) -> int:
        return self.tensor * self.sequence

    def places(self) -> Iterator[CellPlace]:
        """The places of all ranks."""
        sizes = (self.tensor, self.ulysses, self.ring)
        return (CellPlace(*place) for place in product(*map(range, sizes)))

    @property
    def parted(self) -> frozenset[str]:
        """Sums of which tensor ranks that hold the same parameter have only parts."""
        over = {"heads", "shares"}
        return frozenset(over | {"tokens"} if self.norms == "scattered" else over)


ONE_RANK = CellShape()

"""The numbers of a mesh: how many ranks work together, and on what; without torch.

A run is started with a number of processes, and a mistake in how they are shared out would come to
light in the middle of a model, once for each rank. So a launcher asks these numbers first, and
whoever builds the ranks' grid reads the same ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Self, get_args

from penstock.arch.cell_shape import NORMS, CellShape, Norms
from penstock.arch.config import ModelConfig
from penstock.arch.dealing import deal_heads
from penstock.arch.limits import refuse_count
from penstock.errors import ShapeError, nearest, shown

MeshAxis = Literal["replica", "device", "sequence", "tensor"]
AXES: tuple[MeshAxis, ...] = get_args(MeshAxis)
"""From the slowest to the fastest over ranks, unless another order is given."""

COPY_AXES = ("replica", "ring", "ulysses")
"""Axes along which ranks hold the same weights; "sequence" is ring and ulysses, in this order."""
MESH_SIZES = ("replicas", "sequence", "ring", "tensor", "experts")
"""Numbers of a mesh; that of the devices is the schedule's."""
LARGEST_OF_MESH = 1 << 20
"""More ranks than any run has."""
_LONGEST_NAME = 40
_ELSEWHERE = {
    "tp": "tensor",
    "pp": "pipeline",
    "dp": "replicas",
    "dp_replicate": "replicas",
    "cp": "sequence",
    "sp": "sequence",
    "ep": "experts",
}
"""What other systems call the axes."""
_DIGITS = len(str(LARGEST_OF_MESH))


@dataclass(frozen=True)
class MeshShape:
    """The size of every axis but the devices', and the order of all axes over ranks."""

    replicas: int = 1
    """Copies of the whole pipeline."""
    sequence: int = 1
    """Ranks of a device that share the tokens of a slice."""
    ring: int = 1
    """How many of these pass keys and values round; `sequence / ring` exchange heads."""
    tensor: int = 1
    """Ranks of a device that share its matrices."""
    order: tuple[str, ...] = AXES
    """Axes from the slowest to the fastest over ranks."""
    norms: Norms = "scattered"
    """What tensor ranks hold between the blocks of a layer: their share of the tokens, or all."""
    experts: int = 1
    """Replicas that share the experts of each layer: all of them, or as many as divide them."""

    def __post_init__(self) -> None:
        for name in MESH_SIZES:
            refuse_count(name, getattr(self, name), LARGEST_OF_MESH)
        if self.sequence % self.ring:
            raise ShapeError(
                f"ring is {self.ring}, which does not divide sequence, which is {self.sequence}",
                hint=f"give a ring of {' or '.join(map(str, _divisors(self.sequence, self.ring)))}",
            )
        if self.replicas % self.experts:
            near = " or ".join(map(str, _divisors(self.replicas, self.experts)))
            raise ShapeError(
                f"experts is {self.experts}, which does not divide the {self.replicas} replicas",
                hint=f"let {near} replicas share experts",
            )
        if sorted(self.order) != sorted(AXES):
            raise ShapeError(
                f"order is {', '.join(self.order) or 'empty'}",
                hint=f"name each of {', '.join(AXES)} once",
            )

    @property
    def cell(self) -> CellShape:
        """The ranks that work together as one device of the schedule."""
        sizes = (self.tensor, self.sequence // self.ring, self.ring)
        return CellShape(*sizes, self.norms, self.experts)

    def ranks(self, devices: int) -> int:
        """Processes of a run on so many devices.

        >>> MeshShape(replicas=2, tensor=4).ranks(3)
        24
        """
        return self.replicas * devices * self.cell.ranks

    @classmethod
    def parse(cls, text: str) -> Self:
        """A mesh as the command line writes it.

        >>> MeshShape.parse("tensor=2,replicas=3").ranks(1)
        6
        >>> MeshShape.parse("tensor=2,norms=replicated").cell.norms
        'replicated'
        """
        given: dict[str, Any] = {}
        for part in text.split(","):
            name, value = _parsed(part.strip(), text)
            if name in given:
                raise ShapeError(f"--mesh {shown(text)} has {name} twice", hint="give it once")
            given[name] = value
        try:
            return cls(**given)
        except ShapeError as error:
            raise ShapeError(f"--mesh {shown(text)}: {error.message}", hint=error.hint) from None


def _parsed(part: str, text: str) -> tuple[str, int | str]:
    name, equals, size = (word.strip() for word in part.partition("="))
    if not equals:
        raise ShapeError(
            f"--mesh {shown(text)}: {shown(part)} is not a size",
            hint="write NAME=NUMBER with commas between, for example tensor=2,sequence=2",
        )
    if name == "norms" and size in NORMS:
        return name, size
    if name not in (*MESH_SIZES, "norms"):
        devices = "-p gives the devices" if name.startswith("device") else ""
        raise ShapeError(
            f"--mesh {shown(text)}: a mesh has no {shown(name)}",
            hint=devices or axis_hint(name, (*MESH_SIZES, "norms")),
        )
    if name == "norms" or not (size.isascii() and size.isdecimal() and len(size) <= _DIGITS):
        wanted = " or ".join(NORMS) if name == "norms" else "a whole number above 0"
        raise ShapeError(f"--mesh {shown(text)}: {name} is {shown(size)}", hint=f"give {wanted}")
    return name, int(size)


def _divisors(number: int, wanted: int) -> list[int]:
    """The divisors of a number next to another one, which is none of them."""
    found = [each for each in range(1, number + 1) if number % each == 0]
    below = max(each for each in found if each < wanted)
    return [below, *(each for each in found if each > wanted)][:2]


@lru_cache(maxsize=1024)
def refuse_misfits(model: ModelConfig, mesh: MeshShape) -> None:
    """Refuse a mesh in which a rank would have no part of the model."""
    _refuse_experts(model, mesh.experts)
    columns = min(kind.ffn for kind in model.kinds)
    parts = (("query heads", model.heads), ("columns of the MLP", columns))
    for what, count in (*parts, ("words of the vocabulary", model.vocabulary)):
        if mesh.tensor > count:
            raise ShapeError(
                f"mesh.tensor is {mesh.tensor}, but the model has {count} {what}",
                hint=f"set mesh.tensor to {count} or less",
            )
    held = fewest_heads(model.heads, model.kv_heads, mesh.tensor)
    if mesh.cell.ulysses > held:
        rank = f"one of {mesh.tensor} tensor ranks has {held} of {model.heads} query heads"
        owner = rank if mesh.tensor > 1 else f"the model has {held} query heads"
        raise ShapeError(
            f"mesh.sequence is {mesh.sequence} and mesh.ring {mesh.ring}, so that "
            f"{mesh.cell.ulysses} ranks exchange heads, but {owner}",
            hint=f"set mesh.ring to {_ring(mesh.sequence, held)}, or mesh.sequence to "
            f"{mesh.ring * held}",
        )


def refuse_shard(mesh: MeshShape, shard: str) -> None:
    """Refuse replicas that share experts, and so hold different weights, where ranks that hold the
    same weights are to share them."""
    if mesh.experts > 1 and shard != "none":
        raise ShapeError(
            f"experts is {mesh.experts}, so that replicas hold different weights, but shard is "
            f"{shard!r}, which divides equal ones",
            hint='set shard to "none", or experts to 1',
        )


def axis_hint(name: str, known: Sequence[str]) -> str:
    """What may be meant by an axis that is not known, also in the words of other systems."""
    meant = _ELSEWHERE.get(name.lower(), name)
    if meant in known:
        return f"did you mean {meant!r}?"
    if meant == "experts":
        return "leave it out: the time of what ranks send to experts cannot be predicted"
    return nearest(meant[:_LONGEST_NAME], known)


def refuse_unpriced(mesh: MeshShape) -> None:
    """Refuse what runs, but whose time is not known: tokens that replicas exchange for experts."""
    if mesh.experts > 1:
        raise ShapeError(
            f"experts is {mesh.experts}: what replicas that share experts send each other depends "
            "on what tokens choose, so its time cannot be predicted",
            hint="leave out experts; a run with mesh.experts measures it",
        )


def _refuse_experts(model: ModelConfig, ranks: int) -> None:
    """Refuse replicas that would own none of the experts that they share."""
    experts = model.mixture.experts if model.mixture else 1
    if ranks > experts:
        has = f"{experts} experts" if model.mixture else "no experts"
        raise ShapeError(
            f"mesh.experts is {ranks}, but the model has {has}",
            hint=f"set mesh.experts to {1 if experts < 2 else f'{experts} or less'}",
        )


def shortest_ring(model: ModelConfig, sequence: int, tensor: int) -> int:
    """The shortest ring in which every rank has a head to exchange; 1 where tensor ranks have none,
    which no mesh may.

    >>> shortest_ring(ModelConfig(4, 64, 192, 4, 2, 16, 256), sequence=8, tensor=2)
    4
    """
    if tensor > model.heads:
        return 1
    return _ring(sequence, fewest_heads(model.heads, model.kv_heads, tensor))


def _ring(sequence: int, exchange: int) -> int:
    """The shortest ring with which at most so many ranks exchange heads."""
    rings = (each for each in range(1, sequence + 1) if sequence % each == 0)
    return next(each for each in rings if sequence // each <= exchange)


def fewest_heads(heads: int, kv_heads: int, ranks: int) -> int:
    """Query heads of the rank that gets fewest.

    >>> fewest_heads(12, 3, 2), fewest_heads(12, 3, 5)
    (4, 2)
    """
    shares = (deal_heads(heads, kv_heads, rank, ranks) for rank in range(ranks))
    return min(len(share.queries) for share in shares)

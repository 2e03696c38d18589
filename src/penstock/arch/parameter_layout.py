"""Which part of each parameter a rank holds, and where it lies in a flat buffer.

Whoever handles parameters needs the same answers: how large a buffer is, where a parameter lies in
it, which slice of the whole tensor that is. A layout gives them without torch, to stages, to
checkpoints, to the norm and to exported files alike.

    whole      [outputs, inputs]              one rank holds everything
    parts      rank 0 | rank 1 | rank 2       along one axis, head by head where it has heads

What is trained and what is frozen lie in buffers of their own: the first has gradients and an
optimizer, the second values alone.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from penstock.arch.layers.parameter import Parameter, TensorShape
from penstock.errors import ShapeError


@dataclass(frozen=True)
class ParameterPart:
    """What a rank holds of one parameter: the range [start, end) of an axis, all of the others."""

    shape: TensorShape
    """Of the whole parameter."""
    axis: int
    start: int
    end: int
    offset: int
    """First element in the flat buffer."""
    holders: range = range(1)
    """Ranks, of those that share the parameters, that hold the same part."""
    among: tuple[range, ...] = (range(1),)
    """The holders of all parts, in order."""
    adds_over: str = ""
    """What its gradient is a sum over, where holders may each have only some of it."""
    dealt_over: int = 1
    """Replicas of which one has it: its gradient is not added up over these, but over every so many
    of all; 1: every replica has it."""
    rate: float = 1.0
    """What the learning rate is multiplied by."""

    @property
    def local_shape(self) -> TensorShape:
        """The shape of the part."""
        return (*self.shape[: self.axis], self.end - self.start, *self.shape[self.axis + 1 :])

    @property
    def elements(self) -> int:
        return prod(self.local_shape)

    @property
    def stop(self) -> int:
        """One behind its last element in the flat buffer."""
        return self.offset + self.elements

    @property
    def index(self) -> tuple[slice, ...]:
        """Which slice of the whole tensor it is: `whole[part.index]`."""
        return tuple(
            slice(self.start, self.end) if axis == self.axis else slice(0, size)
            for axis, size in enumerate(self.shape)
        )

    def is_parted(self, over: Collection[str]) -> bool:
        """Whether its gradient is added up over several holders, where sums are parted so."""
        return len(self.holders) > 1 and self.adds_over in over

    @property
    def is_whole(self) -> bool:
        return self.local_shape == self.shape


@dataclass(frozen=True)
class ParameterLayout:
    """The parameters of a stage on one rank, one behind the other in a flat buffer."""

    parts: Mapping[str, ParameterPart]
    """By name, in the order of the buffer."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """Parameters at the end whose values are those of another one, as a head's that is tied to the
    embedding beside it. They have gradients of their own, and no place where values lie."""
    frozen: "ParameterLayout | None" = None
    """Where parameters lie that are not trained, in a buffer of their own; None: all are."""

    def __contains__(self, name: str) -> bool:
        return name in self.parts or (self.frozen is not None and name in self.frozen)

    def part(self, name: str) -> ParameterPart:
        """What the rank holds of a parameter, trained or frozen."""
        if name in self.parts or self.frozen is None:
            return self.parts[name]
        return self.frozen.part(name)

    @cached_property
    def elements(self) -> int:
        """Elements of a flat buffer of gradients."""
        return sum(part.elements for part in self.parts.values())

    @cached_property
    def distinct(self) -> dict[str, ParameterPart]:
        """Parameters that have values of their own."""
        return {name: part for name, part in self.parts.items() if name not in self.shared}

    @cached_property
    def stored(self) -> int:
        """Elements of a flat buffer of values."""
        return sum(part.elements for part in self.distinct.values())

    def parts_in(self, elements: int) -> Mapping[str, ParameterPart]:
        """Where parameters lie in a flat buffer of that many elements: of gradients, or of
        values."""
        if elements == self.elements:
            return self.parts
        return {name: self.parts[self.shared.get(name, name)] for name in self.parts}

    def sharing(self, shared: Mapping[str, str]) -> "ParameterLayout":
        """The same, where parameters at its end take the values of others."""
        if self.frozen is not None and all(name in self.frozen for name in shared):
            return replace(self, frozen=self.frozen.sharing(shared))
        if [*self.parts][len(self.parts) - len(shared) :] != [*shared]:
            raise ShapeError(
                f"{', '.join(shared)} cannot share values: they are not the last of the layout",
                hint="put parameters that share the values of others after all others",
            )
        return replace(self, shared=dict(shared))

    def held_by(self, holders: range, among: tuple[range, ...]) -> "ParameterLayout":
        """The same, where these ranks hold each part, and `among` all ranks the others."""
        parts = {
            name: replace(part, holders=holders, among=among) for name, part in self.parts.items()
        }
        frozen = self.frozen.held_by(holders, among) if self.frozen else None
        return replace(self, parts=parts, frozen=frozen)


def lay_out(parameters: Mapping[str, Parameter], index: int = 0, of: int = 1) -> ParameterLayout:
    """The layout of these parameters, in this order, on rank `index` of `of` that share them."""
    if not 0 <= index < of:
        raise ShapeError(
            f"rank {index} is none of the {of} that share the parameters",
            hint="ranks of the tensor axis count from 0",
        )
    trained = {name: each for name, each in parameters.items() if each.trained}
    frozen = {name: each for name, each in parameters.items() if not each.trained}
    apart = ParameterLayout(_parts(frozen, index, of)) if frozen else None
    return ParameterLayout(_parts(trained, index, of), frozen=apart)


def _parts(parameters: Mapping[str, Parameter], index: int, of: int) -> dict[str, ParameterPart]:
    """What a rank holds of each, one behind the other."""
    parts: dict[str, ParameterPart] = {}
    offset = 0
    for name, parameter in parameters.items():
        parts[name] = _part(name, parameter, offset, index, of)
        offset = parts[name].stop
    return parts


def _part(name: str, parameter: Parameter, offset: int, index: int, of: int) -> ParameterPart:
    share, axis = parameter.share(index, of), parameter.axis or 0
    if not share:
        raise ShapeError(
            f"{of} ranks cannot share {name}, which has {parameter.shape[axis]} elements along "
            f"axis {axis}: rank {index} would have none",
            hint=f"take at most {parameter.shape[axis]} ranks",
        )
    holders = [parameter.holders(rank, of) for rank in range(of)]
    return ParameterPart(
        parameter.shape,
        axis,
        share.start,
        share.stop,
        offset,
        holders[index],
        tuple(dict.fromkeys(holders)),
        parameter.adds_over,
        parameter.dealt_over,
        parameter.rate,
    )

"""Which layers a stage holds: every layer exactly once, in order."""

from collections.abc import Sequence
from itertools import accumulate

from penstock.errors import ShapeError


def split_layers(layers: int, stages: int, counts: Sequence[int] = ()) -> tuple[range, ...]:
    """The layers of each stage: as even as can be, the fuller stages first, or as `counts` says.

    >>> split_layers(6, 4)
    (range(0, 2), range(2, 4), range(4, 5), range(5, 6))
    >>> split_layers(6, 3, counts=(1, 3, 2))
    (range(0, 1), range(1, 4), range(4, 6))
    """
    sizes = list(counts or even_split(layers, stages))
    if len(sizes) != stages or sum(sizes) != layers or min(sizes) < 0:
        raise ShapeError(
            f"layers per stage {', '.join(map(str, sizes))} (sum {sum(sizes)}, {len(sizes)} "
            f"stages) do not hold {layers} layers in {stages} stages",
            hint="give every stage a count of 0 or more, with the model's layers as their sum",
        )
    ends = tuple(accumulate(sizes))
    return tuple(range(end - size, end) for end, size in zip(ends, sizes))


def even_split(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of stages that have as many as each other, or one more.

    >>> even_split(6, 4)
    (2, 2, 1, 1)
    """
    each, over = divmod(layers, stages)
    return tuple(each + (stage < over) for stage in range(stages))

"""Which layers a stage holds: every layer exactly once, in order."""

from collections.abc import Sequence
from itertools import accumulate, groupby

from penstock.errors import ShapeError

MOST_STAGES = 1 << 20
"""More than any model has layers."""


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


def written_counts(counts: Sequence[int]) -> str:
    """Layers of stages as text; equal ones that follow each other as COUNT*LAYERS.

    >>> written_counts((9, 9, 8, 6)), written_counts((2, 2, 2, 2, 1))
    ('9,9,8,6', '4*2,1')
    """
    runs = [(layers, len([*equal])) for layers, equal in groupby(counts)]
    each = (
        f"{count}*{layers}" if count > 2 else ",".join([str(layers)] * count)
        for layers, count in runs
    )
    return ",".join(each)


def read_counts(text: str) -> tuple[int, ...]:
    """The same read; ValueError where it is something else.

    >>> read_counts("4*2,1")
    (2, 2, 2, 2, 1)
    """
    counts: list[int] = []
    for part in text.split(","):
        times, star, layers = part.rpartition("*")
        count, each = (_number(times) if star else 1), _number(layers)
        if count > MOST_STAGES:
            raise ValueError(part)
        counts += [each] * count
    return tuple(counts)


def _number(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > len(str(MOST_STAGES)):
        raise ValueError(text)
    return int(text)


def even_split(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of stages that have as many as each other, or one more.

    >>> even_split(6, 4)
    (2, 2, 1, 1)
    """
    each, over = divmod(layers, stages)
    return tuple(each + (stage < over) for stage in range(stages))

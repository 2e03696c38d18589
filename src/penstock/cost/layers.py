"""Layers of a model, each with its own cost, and the stages they are grouped into.

An embedding moves bytes, a head multiplies by the vocabulary, a mixture of experts is heavier than
the dense layers before it: stages with equal numbers of layers are then not equal stages. A layer
is given by numbers that multiply the prices of a request: the times of F, I and W and the sizes of
act and stash. The stage that holds some layers has the sums.

    16*1,4@0         sixteen layers that cost 1, and a head that costs 4 and keeps nothing
    COUNT*TIME@MEMORY, separated by commas; COUNT* and @MEMORY may be left out

A file says the same with a line for each kind of layer; what is left out is 1, and stash is act:

    # a Gemma-like model
    block x 16: F=1 I=1 W=1 act=1 stash=1/2
    head: F=4 I=4 W=4 act=0
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from penstock.core.numbers import read_number
from penstock.core.shape import WEIGHED, Shape
from penstock.errors import FormatError, ShapeError, nearest

MAX_LAYERS = 10_000
MAX_LAYER_BYTES = 1_000_000
"""Files above this are no list of layers."""
_ITEM = re.compile(r"(?:(\d{1,6})\*)?([^*@]+)(?:@([^*@]+))?", re.ASCII)
_LINE = re.compile(r"([^:=]+?)(?: x (\d{1,6}))?:(.*)", re.ASCII)


class Layer(NamedTuple):
    """What one layer costs, in units of the prices of a request."""

    F: Fraction = Fraction(1)
    I: Fraction = Fraction(1)  # noqa: E741 - the letter of the op
    W: Fraction = Fraction(1)
    act: Fraction = Fraction(1)
    stash: Fraction = Fraction(1)

    @classmethod
    def even(cls, time: Fraction, memory: Fraction) -> "Layer":
        """A layer that weighs the same in all kinds of op, and in both sizes."""
        return cls(time, time, time, memory, memory)


Layers = tuple[Layer, ...]


def read_layers(text: str) -> Layers:
    """The layers of a text such as `16*1,4@0`, or of the file that it names.

    >>> [float(layer.F) for layer in read_layers("2*1,4@0")]
    [1.0, 1.0, 4.0]
    """
    items = text.split(",")
    first = _ITEM.fullmatch(items[0].strip())
    if first and _number(first[2]) is not None:
        _refuse_many(len(items))  # before each of them is read
        return check_layers([layer for item in items for layer in _of_item(item.strip())])
    lines = _file(text).splitlines()
    return check_layers(
        [
            layer
            for number, line in enumerate(lines, 1)
            if (said := line.partition("#")[0].strip())
            for layer in _of_line(said, number)
        ]
    )


def _file(path: str) -> str:
    """The text of a file of layers, which is short."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_LAYER_BYTES + 1)
        text = content.decode()
    except (OSError, ValueError):
        raise ShapeError(
            f"{path[:60]!r} is neither a list of layers nor a file that can be read",
            hint="write layers as 16*1,4@0 (COUNT*TIME@MEMORY), or name a file",
        ) from None
    if len(content) > MAX_LAYER_BYTES:
        raise ShapeError(
            f"{path[:60]!r} is larger than {MAX_LAYER_BYTES:,} bytes",
            hint="give a line for each kind of layer",
        )
    return text


def check_layers(layers: Sequence[Layer]) -> Layers:
    """The layers, unless there are none, too many, or no work in them."""
    _refuse_many(len(layers))
    if not any(layer.F + layer.I + layer.W for layer in layers):
        raise ShapeError("no layer takes any time", hint="give at least one layer a time above 0")
    return tuple(layers)


def _refuse_many(count: int) -> None:
    if not 0 < count <= MAX_LAYERS:
        raise ShapeError(
            f"{count:,} layers cannot be divided into stages",
            hint=f"give 1 to {MAX_LAYERS:,} layers",
        )


def _of_item(item: str) -> list[Layer]:
    found = _ITEM.fullmatch(item)
    numbers = [_number(text) for text in found.groups()[1:] if text] if found else [None]
    if found is None or None in numbers:
        raise ShapeError(
            f"{item[:40]!r} is not a layer", hint="write COUNT*TIME@MEMORY, as 16*1 or 4@0 or 1/2"
        )
    time, *memory = (number for number in numbers if number is not None)
    return [Layer.even(time, *memory or [time])] * _counted(found[1])


def _number(text: str) -> Fraction | None:
    """A number of at least 0; None for what is none."""
    try:
        value = read_number(text)
    except ValueError:
        return None
    return value if value >= 0 else None


def _counted(text: str | None) -> int:
    """A number of layers, kept below what would be refused anyway."""
    return min(int(text or 1), MAX_LAYERS + 1)


def _of_line(line: str, number: int) -> list[Layer]:
    found = _LINE.fullmatch(line)
    if found is None:
        hint = "write NAME x COUNT: F=1 W=2"
        raise FormatError(f"{line[:40]!r} is not a layer", line=number, column=1, hint=hint)
    values = dict(_assignment(item, number) for item in found[3].split())
    values.setdefault("stash", values.get("act", Fraction(1)))
    return [Layer(**values)] * _counted(found[2])


def _assignment(item: str, number: int) -> tuple[str, Fraction]:
    key, _, value = item.partition("=")
    if key not in WEIGHED:
        hint = nearest(key[:40], WEIGHED)
        raise FormatError(f"{key[:40]!r} is not known", line=number, column=1, hint=hint)
    amount = _number(value)
    if amount is None:
        hint = "write it as 2, 0.25 or 1/3"
        raise FormatError(f"{item[:40]!r} is not a number", line=number, column=1, hint=hint)
    return key, amount


def stage_sums(layers: Layers, split: Sequence[int]) -> list[Layer]:
    """The sums of consecutive layers: `split` says how many go into each stage.

    >>> [float(stage.F) for stage in stage_sums(read_layers("4*1,4"), (3, 2))]
    [3.0, 5.0]
    """
    ends = list(accumulate(split))
    pieces = [layers[end - count : end] for end, count in zip(ends, split)]
    return [Layer(*(sum(column, Fraction(0)) for column in zip(*piece))) for piece in pieces]


def layered_shape(
    layers: Layers, split: Sequence[int], devices: int, microbatches: int, slices: int = 1
) -> Shape:
    """The shape of a model cut into stages: each weighs what its layers weigh together."""
    decoder = _decoder_layers(layers)
    columns = dict(zip(Layer._fields, zip(*stage_sums(layers, split))))
    kinds = tuple((name, columns[name]) for name in WEIGHED if columns[name] != columns["F"])
    equal = set(columns["F"]) == {Fraction(devices, len(split))}
    share = () if equal else columns["F"]
    ends = [min(max(end, decoder.start), decoder.stop) for end in (0, *accumulate(split))]
    counts = tuple(end - start for start, end in pairwise(ends))
    return Shape(devices, len(split), (slices,) * microbatches, share, kinds, layers=counts)


def _decoder_layers(layers: Layers) -> range:
    """The layers without embedding and head, which the first and the last stage have anyway.

    They are known by their weight: the first and the last, where all between are equal and they
    are not.

    >>> _decoder_layers(read_layers("16*1,4@0")), _decoder_layers(read_layers("1,3*2,4"))
    (range(0, 16), range(1, 4))
    """
    between = layers[1:-1]
    if not between or between.count(between[0]) < len(between):
        return range(len(layers))
    return range(layers[0] != between[0], len(layers) - (layers[-1] != between[0]))

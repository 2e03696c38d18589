"""Sequences of unequal lengths in a layout, for schedules that cut them into slices of one size.

Such a schedule is told the length of each microbatch in slices (its option `groups`), so a layout
needs one number more: `tokens` are those of the longest sequence, which has most slices. The batch
is what all of them have together.

    groups=1,1,4, tokens 32768    slices of 8192 tokens: 8192, 8192 and 4 x 8192
"""

from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

from penstock.errors import ShapeError, shown
from penstock.estimate.layout import MOST_OPS, MicrobatchSlices
from penstock.schedules import registry
from penstock.schedules.generators.ragged import read_lengths, write_lengths

_GROUPS = "groups"


def with_groups(values: Mapping[str, Any], replicas: int) -> dict[str, Any]:
    """The values of a layout, with the lengths of its microbatches where its schedule takes any;
    without them all are `tokens` long, in as many slices as are asked for."""
    spec = registry().get(values["schedule"])
    if spec is None or not spec.ragged:
        return {**values}
    options = dict(values.get("options", ()))
    others = {name: value for name, value in values.items() if name != "slices"}
    if _GROUPS in options:
        _refuse_slices(values)
        groups = _read(options[_GROUPS])
    else:
        of_microbatch = values["tokens"] * values.get("rows", 1) * replicas
        count = max(1, values["batch_tokens"] // of_microbatch)
        slices = values.get("slices", 1)
        if count * slices > MOST_OPS:
            return {**values}  # which is refused with the number of its ops
        groups = (Fraction(slices),) * count
        options[_GROUPS] = write_lengths(groups)
    return {**others, "options": tuple(sorted(options.items())), "groups": groups}


def _refuse_slices(values: Mapping[str, Any]) -> None:
    if "slices" in values:
        raise ShapeError(
            f"slices is {values['slices']}, but groups say how many each microbatch has",
            hint="leave out one of both",
        )


def _read(text: str) -> MicrobatchSlices:
    with suppress(ValueError, ZeroDivisionError):
        return read_lengths(text)
    raise ShapeError(
        f"groups is {shown(text)}", hint="give the slices of each microbatch, as 1,1/2,4"
    )

"""What a device can do, and how it is written down.

An op is one piece of compute: `2F0.1` is the forward (F) of stage 2 for microbatch 0, slice 1. The
slice is left out when it is 0. An op has no time, no device and no send: the lane it stands in
decides its device, the cost model its time, the lowering its transfers.
"""

import re
from typing import NamedTuple

from penstock.errors import FormatError

KINDS: dict[str, str] = {
    "F": "forward",
    "N": "forward that keeps only its input",
    "R": "recompute of a forward",
    "B": "full backward",
    "I": "backward, input gradient",
    "W": "backward, weight gradient",
    "E": "embedding forward on one vocabulary shard",
    "D": "embedding backward on one vocabulary shard",
    "S": "output layer, first pass on one vocabulary shard",
    "T": "output layer, second pass on one vocabulary shard",
    "O": "offload of an activation to the host",
    "L": "load of an activation from the host",
    "G": "gather of a stage's weights",
    "Z": "reduction of a stage's gradients",
    "U": "optimizer update of a stage",
    "V": "norm of a stage's gradients",
    "A": "early update of a stage, by its own norm",
    "C": "confirmation of an early update, by the norm of the model",
}

SHARD_KINDS = frozenset("EDST")
"""Kinds whose leading number is a vocabulary shard, equal to the device, instead of a stage."""

STAGE_KINDS = frozenset("GZUVAC")
"""Kinds that serve a whole stage: an ordinal stands in place of the microbatch."""


def home_number(op: "Op", stages: int) -> int:
    """The number under which an op's weights are known: that of its stage, or one behind all
    stages where it works on a vocabulary shard.

    >>> home_number(Op("F", 1, 0), stages=4), home_number(Op("S", 1, 0), stages=4)
    (1, 5)
    """
    return op.stage + stages if op.kind in SHARD_KINDS else op.stage


STREAMS = ("compute", "copy", "collective")
"""What runs side by side on one device; a lane is one stream of one device."""

_OP = re.compile(r"(\d{1,9})([A-Z])(\d{1,9})(?:\.(\d{1,9}))?", re.ASCII)


class Op(NamedTuple):
    """One piece of work. Its identity is all it has: kind, stage, microbatch, slice."""

    kind: str
    stage: int
    mb: int
    slice: int = 0

    def __str__(self) -> str:
        tail = f".{self.slice}" if self.slice else ""
        return f"{self.stage}{self.kind}{self.mb}{tail}"


def parse_op(text: str) -> Op:
    """The op that `text` spells, such as `2F0.1`.

    >>> parse_op("2F0.1")
    Op(kind='F', stage=2, mb=0, slice=1)
    """
    match = _OP.fullmatch(text)
    if match is None or match[2] not in KINDS:
        raise FormatError(
            f"{text[:40]!r} is not an op",
            hint="an op is STAGE KIND MICROBATCH[.SLICE], for example 2F0.1; "
            f"kinds are {' '.join(KINDS)}",
        )
    return Op(match[2], int(match[1]), int(match[3]), int(match[4] or 0))

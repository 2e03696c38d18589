"""Cut every microbatch of a schedule into slices, and say how much work each slice is.

A schedule that was written for whole sequences becomes one over slices in place: where a forward
stood, its slices go from the start of the sequence to its end; where a backward stood, they come
back from the end, because an earlier slice needs the key/value gradients of the later ones.

    1f1b, p = 2, m = 2              cut into 2 slices
    device 0  F0 F1 B0 B1           F0 F0.1 F1 F1.1 B0.1 B0 B1.1 B1
    device 1  F0 B0 F1 B1           F0 F0.1 B0.1 B0 F1 F1.1 B1.1 B1

The transfers of a slice overlap the work of the next; memory is what it was.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from penstock.core.ops import STAGE_KINDS, Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.transform._blocks import OpBlock, refuse_above_limit, refuse_loans, replace_ops

SliceShares = Sequence[Fraction]

FROM_THE_START = frozenset("FNESO")
"""Kinds of the forward pass, whose slices run in the order of the sequence; all others reverse."""


def cut_slices(schedule: Schedule, count: int, *, shares: SliceShares = ()) -> Schedule:
    """Each slice of each microbatch as `count` slices, which do `shares` of its work.

    The shares default to equal ones. A schedule that has slices is cut more finely.
    """
    if not isinstance(count, int) or count < 1:
        raise ShapeError(f"cannot cut into {count} slices", hint="give 1 or more")
    refuse_above_limit(len(schedule.table) * count)
    refuse_loans(schedule.loans, "a loan counts whole key/value slices, which cutting would change")
    rising, falling = range(count), range(count - 1, -1, -1)

    def block(op: Op) -> OpBlock:
        if op.kind in STAGE_KINDS:
            return (op, *[None] * (count - 1))
        order = rising if op.kind in FROM_THE_START else falling
        return tuple(op._replace(slice=op.slice * count + piece) for piece in order)

    shape = _cut_shape(schedule.shape, count, shares)
    return replace_ops(schedule, block, name=f"{schedule.name}+slices{count}", shape=shape)


def weigh_slices(schedule: Schedule, shares: Sequence[SliceShares]) -> Schedule:
    """The schedule with other shares of work: for each microbatch, one share per slice.

    A microbatch may be more or less work than another; its shares need not add up to 1.
    """
    given = tuple(tuple(map(Fraction, of_microbatch)) for of_microbatch in shares)
    if any(share <= 0 for of_microbatch in given for share in of_microbatch):
        raise ShapeError("a slice has no work", hint="give positive shares")
    return replace(schedule, shape=replace(schedule.shape, slice_share=given), derived={})


def _cut_shape(shape: Shape, count: int, shares: SliceShares) -> Shape:
    slices = tuple(of_microbatch * count for of_microbatch in shape.slices)
    if not shares and not shape.slice_share:
        return replace(shape, slices=slices)
    pieces = tuple(map(Fraction, shares)) or (Fraction(1, count),) * count
    if len(pieces) != count:
        raise ShapeError(f"{len(pieces)} shares are given for {count} slices")
    _refuse_unfair(pieces)
    slice_share = tuple(
        tuple(shape.share_of_slice(mb, slice) * piece for slice in range(old) for piece in pieces)
        for mb, old in enumerate(shape.slices)
    )
    return replace(shape, slices=slices, slice_share=slice_share)


def _refuse_unfair(shares: SliceShares) -> None:
    """Shares divide the work of one sequence: nothing is lost and nothing is added."""
    if sum(shares) != 1 or any(share <= 0 for share in shares):
        raise ShapeError(
            f"the shares {', '.join(map(str, shares))} do not divide the work of one sequence",
            hint="give positive shares that add up to 1",
        )

"""kFkB: run k copies of a schedule in lock-step, each on its own microbatches.

Where the network is slow or shared, a device waits for the activation that has just been sent. With
k copies of a schedule, each op is followed by the same op of the other copies, and the transfer of
one member hides behind the work of the next. It costs k times the activations.

    1f1b, p = 2, m = 2              groups of 2
    device 0  F0 F1 B0 B1           F0 F1 F2 F3 B0 B1 B2 B3
    device 1  F0 B0 F1 B1           F0 F1 B0 B1 F2 F3 B2 B3

Microbatch i of copy q is microbatch ik + q of the result, so a group is consecutive. The copies
share nothing but weights, so the merge of legal ones is legal. Source: arXiv:2303.01675.
"""

from collections.abc import Iterator
from dataclasses import replace

from penstock.core.ops import STAGE_KINDS, Op
from penstock.core.schedule import After, Loan, Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.transform._blocks import BlockOf, OpBlock, present, refuse_above_limit, replace_ops


def group(schedule: Schedule, size: int, *, microbatches: int | None = None) -> Schedule:
    """Each microbatch of the schedule as a group of `size`.

    `microbatches` of the result may be fewer than all groups hold: the last group is then short,
    and the copies that lack its member simply skip it.
    """
    if not isinstance(size, int) or size < 1:
        raise ShapeError(f"cannot form groups of {size}", hint="give 1 or more")
    refuse_above_limit(len(schedule.table) * size)
    groups = schedule.shape.microbatches
    total = groups * size if microbatches is None else microbatches
    if not (groups - 1) * size < total <= groups * size:
        raise ShapeError(
            f"{groups} groups of {size} hold {(groups - 1) * size + 1} to {groups * size} "
            f"microbatches, not {total}",
            hint=f"generate the schedule for {-(-total // size)} microbatches before grouping it",
        )

    def block(op: Op) -> OpBlock:
        if op.kind in STAGE_KINDS:  # copies share the weights, and with them their traffic
            return (op, *[None] * (size - 1))
        members = range(op.mb * size, op.mb * size + size)
        return tuple(op._replace(mb=mb) if mb < total else None for mb in members)

    return replace_ops(
        schedule,
        block,
        name=f"{schedule.name}+group{size}",
        shape=_grouped(schedule.shape, size, total),
        loans=tuple(
            Loan(heavy, light, count)
            for first, second, count in schedule.loans
            for heavy, light in _members(block, first, second)
        ),
        after=tuple(
            After(op, earlier)
            for first, second in schedule.after
            for op, earlier in _members(block, first, second)
        ),
    )


def _members(block: BlockOf, first: Op, second: Op) -> Iterator[tuple[Op, Op]]:
    """Two annotated ops in every copy; an op that the copies share goes with all of the other."""
    if (first.kind in STAGE_KINDS) == (second.kind in STAGE_KINDS):
        pairs = zip(block(first), block(second), strict=True)
        yield from ((one, other) for one, other in pairs if one and other)
    else:
        yield from ((one, two) for one in present(block(first)) for two in present(block(second)))


def _grouped(shape: Shape, size: int, total: int) -> Shape:
    of_group = [mb // size for mb in range(total)]
    return replace(
        shape,
        slices=tuple(shape.slices[group] for group in of_group),
        slice_share=tuple(shape.slice_share[group] for group in of_group)
        if shape.slice_share
        else (),
    )

"""Keep only the input of a forward, and run it again right before its backward.

Activations are what limits the length of a sequence. A forward `N` keeps its input alone; an `R`
right before the backward makes the activation again, at the price of one more forward.

    1f1b, p = 2, m = 2              recompute all
    device 0  F0 F1 B0 B1           N0 N1 R0 B0 R1 B1
    device 1  F0 B0 F1 B1           N0 R0 B0 N1 R1 B1

An R stands in front of a pair, never in it. Forwards that already keep only their input stay. Where
attention of a backward is lent to another one, that of its R is lent in the same way.
"""

from collections.abc import Callable, Collection, Iterator

from penstock.core.ops import Op
from penstock.core.schedule import Loan, Schedule
from penstock.errors import ShapeError
from penstock.transform._blocks import OpBlock, replace_ops


def recompute_all(schedule: Schedule) -> Schedule:
    """Recompute every forward."""
    return _recompute(schedule, lambda op: True)


def recompute_stages(schedule: Schedule, stages: Collection[int]) -> Schedule:
    """Recompute the forwards of some stages."""
    for stage in stages:
        if not 0 <= stage < schedule.shape.stages:
            raise ShapeError(
                f"stage {stage} cannot be recomputed: there are {schedule.shape.stages} stages",
                hint=f"give stages from 0 to {schedule.shape.stages - 1}",
            )
    chosen = frozenset(stages)
    return _recompute(schedule, lambda op: op.stage in chosen)


def recompute_without_attention(schedule: Schedule) -> Schedule:
    """Recompute all but attention, where that is a stage of its own: its output is kept, and what
    leads into it and follows it is computed again.

    Attention that is given queries, keys and values keeps all it needs. One that makes them itself
    keeps its input and its output, and makes them again.
    """
    shape = schedule.shape
    if not shape.weightless:
        raise ShapeError(
            f"{schedule.name} has no stages of attention alone, so nothing can be recomputed "
            "without it",
            hint="recompute all, or take a schedule that cuts layers at their attention",
        )
    kept = shape.weightless if shape.to_attention == "heads" else frozenset()
    return _recompute(schedule, lambda op: op.stage not in kept)


def recompute_all_but_last_slices(schedule: Schedule, count: int) -> Schedule:
    """Recompute all but the last `count` slices of each microbatch.

    The last slices go backward soonest, so their activations are the cheapest to keep.
    """
    if count < 0:
        raise ShapeError(f"cannot keep {count} slices", hint="give 0 or more")
    slices = schedule.shape.slices
    return _recompute(schedule, lambda op: op.slice < slices[op.mb] - count)


def _recompute(schedule: Schedule, choose: Callable[[Op], bool]) -> Schedule:
    chosen = {op[1:] for op in _ops_of(schedule, "F") if choose(op)}
    _refuse_offload(schedule, chosen)

    def block(op: Op) -> OpBlock:
        if op[1:] not in chosen or op.kind not in "FBI":
            return (None, op)
        if op.kind == "F":
            return (None, op._replace(kind="N"))
        return (op._replace(kind="R"), op)

    loans = tuple(lent for loan in schedule.loans for lent in _lent_again(loan, chosen))
    name = f"{schedule.name}+recompute"
    return replace_ops(schedule, block, name=name, shape=schedule.shape, loans=loans)


def _lent_again(loan: Loan, chosen: set[tuple[int, int, int]]) -> Iterator[Loan]:
    """A loan, and where both its backwards are preceded by an R, the same between these: they are
    in step as the backwards are."""
    heavy, light, slices = loan
    if all(op[1:] in chosen and op.kind in "BI" for op in (heavy, light)):
        yield Loan(heavy._replace(kind="R"), light._replace(kind="R"), slices)
    heavy, light = (
        op._replace(kind="N") if op[1:] in chosen and op.kind == "F" else op
        for op in (heavy, light)
    )
    yield Loan(heavy, light, slices)


def _ops_of(schedule: Schedule, kind: str) -> list[Op]:
    """All ops of a kind that are inside the shape; the others are refused with the lanes."""
    rows = schedule.table.of_kinds(kind) & (schedule.unit >= 0)
    return [schedule.table.op(row) for row in rows.nonzero()[0].tolist()]


def _refuse_offload(schedule: Schedule, chosen: set[tuple[int, int, int]]) -> None:
    """An offload moves the activation that the forward wrote; an N writes none."""
    for op in _ops_of(schedule, "O"):
        if op[1:] in chosen:
            raise ShapeError(
                f"{op._replace(kind='F')} cannot be recomputed: {op} offloads its activation",
                hint="recompute other stages or slices, or leave the offload out",
            )

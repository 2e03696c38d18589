"""Split a backward into its input gradient and its weight gradient, and put the two together again.

Only the input gradient keeps the previous stage waiting. Splitting `B` into `I W` in place changes
no order, but a transform or a search may then move the W into a bubble:

    1f1b, p = 2, m = 2              split
    device 0  F0 F1 B0 B1           F0 F1 I0 W0 I1 W1
    device 1  F0 B0 F1 B1           F0 I0 W0 F1 I1 W1

Merging is the inverse for every W that directly follows its I. A stage without weights has no W:
its backward stays whole. Source: arXiv:2401.10241, section 2.
"""

from collections import Counter
from collections.abc import Iterable

from penstock.core.ops import Op
from penstock.core.schedule import After, Loan, Schedule
from penstock.transform._blocks import (
    ItemLanes,
    LaneItem,
    OpBlock,
    item_lanes,
    replace_ops,
    unique,
    with_items,
)

StageUnit = tuple[int, int, int]
"""Stage, microbatch and slice: what an I and its W have in common."""


def split_backward(schedule: Schedule) -> Schedule:
    """Every B as I and W, one right after the other; an I stays braided, its W follows."""
    weightless = schedule.shape.weightless

    def block(op: Op) -> OpBlock:
        if op.kind != "B" or op.stage in weightless:
            return (op, None)
        return (op._replace(kind="I"), op._replace(kind="W"))

    def lent(op: Op) -> Op:
        """Attention work belongs to the input gradient."""
        return block(op)[0] or op

    loans = tuple(Loan(lent(heavy), lent(light), n) for heavy, light, n in schedule.loans)
    return replace_ops(
        schedule, block, name=f"{schedule.name}+split", shape=schedule.shape, loans=loans
    )


def merge_backward(schedule: Schedule) -> Schedule:
    """Every I that is directly followed by its W as one B; all others stay as they are.

    An I and a W between which an `after` lets something else happen are not one op, and stay two.
    """
    lanes = item_lanes(schedule)
    merged = _mergeable(schedule, lanes)

    def whole(op: Op) -> Op:
        return op._replace(kind="B") if op.kind in "IW" and op[1:] in merged else op

    return with_items(
        schedule.renamed(f"{schedule.name}+merge"),
        [
            (device, stream, [new for item in items if (new := _without(item, merged))])
            for device, stream, items in lanes
        ],
        loans=tuple(Loan(whole(heavy), whole(light), n) for heavy, light, n in schedule.loans),
        gangs=unique(whole(op) for op in schedule.gangs),
        after=unique(After(whole(op), whole(earlier)) for op, earlier in schedule.after),
    )


def _without(item: LaneItem, merged: set[StageUnit]) -> LaneItem:
    """The item with merged I as B and without merged W."""
    return tuple(
        op._replace(kind="B") if op.kind == "I" and op[1:] in merged else op
        for op in item
        if not (op.kind == "W" and op[1:] in merged)
    )


def _mergeable(schedule: Schedule, lanes: ItemLanes) -> set[StageUnit]:
    """Units whose W follows its I in every lane where the two stand, with nothing held between."""
    followed = Counter(unit for _, _, items in lanes for unit in _followed(items))
    standing = Counter(
        op[1:] for _, _, items in lanes for item in items for op in item if op.kind in "IW"
    )
    held = {op[1:] for op, _ in schedule.after if op.kind == "W"}
    held |= {earlier[1:] for _, earlier in schedule.after if earlier.kind == "I"}
    return {
        unit for unit, count in followed.items() if 2 * count == standing[unit] and unit not in held
    }


def _followed(items: Iterable[LaneItem]) -> list[StageUnit]:
    """Units of one lane whose I is in an item that is followed by nothing but W of that item."""
    found: list[StageUnit] = []
    waiting: set[StageUnit] = set()
    for item in items:
        units = {op[1:] for op in item}
        if all(op.kind == "W" for op in item) and units <= waiting:
            found += units
        else:
            waiting = {op[1:] for op in item if op.kind == "I"}
    return found

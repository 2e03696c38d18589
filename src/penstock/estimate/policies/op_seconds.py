"""Seconds of every op of a step on each rank that shares the tokens of a device.

Where ranks form groups, each has the times of its own group: a rank with short documents is done
earlier than its neighbours. Groups lie in a device as in a step plan: one behind the other.
"""

from collections.abc import Sequence

from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.policies.arranged import ArrangedStep, GroupDocuments
from penstock.estimate.policies.document_cost import DocumentCost, GroupedCost, cost_of_step

OpSeconds = dict[Op, float]


def op_seconds(layout: TrainingLayout, step: ArrangedStep) -> list[OpSeconds]:
    """One for each rank of a device that shares its tokens, or one for all where they share all."""
    cost, schedule = cost_of_step(layout, step.schedule, step), step.schedule
    if not isinstance(cost, GroupedCost):
        return [_by_op(cost, schedule)]
    columns = [_by_op(each.cost, schedule) for each in cost.groups]
    numbers = {each.name: number for number, each in enumerate(cost.groups)}
    places = [_names(groups, layout.mesh.sequence) for groups in step.groups]
    return [
        {
            op: columns[numbers[places[op.mb][place]]][op] if place in places[op.mb] else 0.0
            for op in schedule.table.ops()
        }
        for place in range(layout.mesh.sequence)
    ]


def _by_op(cost: DocumentCost, schedule: Schedule) -> OpSeconds:
    durations = cost.durations(schedule)
    ticks = zip(schedule.table.ops(), durations.ticks.tolist())
    return {op: float(count * durations.tick) for op, count in ticks}


def _names(groups: Sequence[GroupDocuments], cell: int) -> dict[int, tuple[int, int]]:
    """For each rank its group: how many ranks it has, and its number among those of that size.

    >>> some = [GroupDocuments(2, ()), GroupDocuments(1, ()), GroupDocuments(1, ())]
    >>> _names(some, 4)
    {0: (2, 0), 1: (2, 0), 2: (1, 0), 3: (1, 1)}
    """
    found: dict[int, tuple[int, int]] = {}
    seen: dict[int, int] = {}
    for group in groups:
        number = seen.get(group.degree, 0)
        seen[group.degree] = number + 1
        first = len(found)
        found |= dict.fromkeys(range(first, first + group.degree), (group.degree, number))
    assert len(found) <= cell, "groups have more ranks than the device"
    return found

"""How many receive slots let no transfer wait: read off a timeline in which none had to.

Fewer slots than these never deadlock (the lowering sees to that), but a transfer may have to wait
for a slot, and with a slow link its reader waits with it.
"""

import numpy as np

from penstock.core.program import Channel
from penstock.core.transfers import moves_of
from penstock.lower.slots import plan_slots
from penstock.sim.timeline import Timeline


def stall_free_slots(timeline: Timeline) -> dict[Channel, int]:
    """For each channel the most transfers that are under way or unread at one time."""
    schedule = timeline.schedule
    moves = moves_of(schedule)
    plan = plan_slots(schedule, moves)
    begin, end = timeline.transfers.start[: len(moves.writer)], timeline.end[moves.last_reader]
    found: dict[Channel, int] = {}
    for number, channel in enumerate(plan.channels):
        here = plan.channel == number
        # A slot is taken when the transfer begins and free when its last reader has ended.
        events = np.concatenate([begin[here], end[here]])
        change = np.repeat([1, -1], here.sum())
        order = np.lexsort((change > 0, events))
        most = int(np.cumsum(change[order]).max(initial=0))
        found[channel] = max(most, int(plan.needed[number]))
    return found

"""The loops over sequences and groups that a search spends its time in.

Arrays of groups: `rows` (of the table of work), `degrees`, `overhead`, `load` (work of the members
so far), `room` (tokens that still fit) and `members` (how many). `at` has the group of every
sequence.
"""

from typing import Any

import numpy as np

from penstock.core.kernel import kernel, part

GroupArray = np.ndarray[Any, Any]


@part
def put_member(
    number: int,
    group: int,
    sign: int,
    lengths: GroupArray,
    work: GroupArray,
    rows: GroupArray,
    load: GroupArray,
    room: GroupArray,
    members: GroupArray,
) -> None:
    """Put a sequence into a group, or with sign -1 take it out."""
    load[group] += sign * work[rows[group], number]
    room[group] -= sign * lengths[number]
    members[group] += sign


@kernel
def fill_groups(
    order: GroupArray,
    lengths: GroupArray,
    work: GroupArray,
    rows: GroupArray,
    degrees: GroupArray,
    overhead: GroupArray,
    at: GroupArray,
    load: GroupArray,
    room: GroupArray,
    members: GroupArray,
) -> bool:
    """Give every sequence, in this order, to the group that is then done earliest; False where one
    fits nowhere."""
    for number in order:
        best, chosen = np.inf, -1
        for group in range(len(degrees)):
            if room[group] >= lengths[number]:
                whole = load[group] + work[rows[group], number]
                seconds = whole / degrees[group] + overhead[group]
                if seconds < best:
                    best, chosen = seconds, group
        if chosen < 0:
            return False
        at[number] = chosen
        put_member(number, chosen, 1, lengths, work, rows, load, room, members)
    return True


@part
def slowest_group(
    degrees: GroupArray, overhead: GroupArray, load: GroupArray, members: GroupArray
) -> Any:
    """The group that is done last, and when."""
    slow, latest = 0, 0.0
    for group in range(len(degrees)):
        seconds = load[group] / degrees[group] + overhead[group]
        if members[group] and seconds > latest:
            slow, latest = group, seconds
    return slow, latest


@part
def best_change(
    given: int,
    slow: int,
    best: float,
    lengths: GroupArray,
    work: GroupArray,
    rows: GroupArray,
    degrees: GroupArray,
    overhead: GroupArray,
    at: GroupArray,
    load: GroupArray,
    room: GroupArray,
    members: GroupArray,
) -> Any:
    """What the slowest group should do with a sequence: seconds of the slower of both groups then,
    where it goes (-1 for nowhere) and what comes for it (-1 for nothing); only what is faster than
    `best` counts."""
    to, taken = -1, -1
    left = (load[slow] - work[rows[slow], given]) / degrees[slow] + overhead[slow]
    alone = 0.0 if members[slow] == 1 else left
    for group in range(len(degrees)):
        if group != slow and room[group] >= lengths[given]:
            there = (load[group] + work[rows[group], given]) / degrees[group] + overhead[group]
            if max(alone, there) < best:
                best, to, taken = max(alone, there), group, -1
    for other in range(len(lengths)):
        group, more = at[other], lengths[given] - lengths[other]
        if group != slow and room[group] >= more and room[slow] >= -more:
            here = left + work[rows[slow], other] / degrees[slow]
            moved = work[rows[group], given] - work[rows[group], other]
            there = (load[group] + moved) / degrees[group] + overhead[group]
            if max(here, there) < best:
                best, to, taken = max(here, there), group, other
    return best, to, taken


@kernel
def improve_members(
    most: int,
    tolerated: float,
    lengths: GroupArray,
    work: GroupArray,
    rows: GroupArray,
    degrees: GroupArray,
    overhead: GroupArray,
    at: GroupArray,
    load: GroupArray,
    room: GroupArray,
    members: GroupArray,
) -> None:
    """Let the slowest group give a sequence to another one, or swap two, so many times or as long
    as both are faster then than it was."""
    for _ in range(most):
        slow, latest = slowest_group(degrees, overhead, load, members)
        best, given, to, taken = latest * (1 - tolerated), -1, -1, -1
        for number in range(len(lengths)):
            if at[number] == slow:
                found = best_change(
                    number,
                    slow,
                    best,
                    lengths,
                    work,
                    rows,
                    degrees,
                    overhead,
                    at,
                    load,
                    room,
                    members,
                )
                if found[1] >= 0:
                    best, given, to, taken = found[0], number, found[1], found[2]
        if given < 0:
            return
        put_member(given, slow, -1, lengths, work, rows, load, room, members)
        put_member(given, to, 1, lengths, work, rows, load, room, members)
        at[given] = to
        if taken >= 0:
            put_member(taken, to, -1, lengths, work, rows, load, room, members)
            put_member(taken, slow, 1, lengths, work, rows, load, room, members)
            at[taken] = slow

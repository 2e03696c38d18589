"""Do pairs, loans, gangs, after and shares name ops that exist and can obey them?"""

from collections.abc import Iterator

from penstock.check.finding import Finding
from penstock.core.ops import Op
from penstock.core.schedule import Schedule

Rows = dict[Op, list[int]]


def annotations(schedule: Schedule) -> Iterator[Finding]:
    """Annotations that cannot be obeyed."""
    fields = (schedule.pairs, schedule.loans, schedule.gangs, schedule.after, schedule.shares)
    if not any(fields):
        return
    rows = schedule.table.rows_by_op
    named = [
        *(("pair", op) for pair in schedule.pairs for op in pair),
        *(("loan", op) for loan in schedule.loans for op in loan[:2]),
        *(("gang", op) for op in schedule.gangs),
        *(("after", op) for pair in schedule.after for op in pair),
        *(("share", op) for op, _ in schedule.shares),
    ]
    absent = [(what, op) for what, op in named if op not in rows]
    if absent:
        yield from (_absent(what, op) for what, op in absent[:8])
        return
    yield from _pairs(schedule, rows)
    yield from _together(schedule, rows)
    yield from _shares(schedule, rows)


def _absent(what: str, op: Op) -> Finding:
    return Finding(
        "annotation",
        (op,),
        0,
        f"the {what} of {op} names an op that is in no lane",
        f"put {op} into a lane, or remove the {what}",
    )


def _pairs(schedule: Schedule, rows: Rows) -> Iterator[Finding]:
    """The strands of a pair stand side by side in one lane, and in no other pair."""
    table = schedule.table
    seen: set[Op] = set()
    for pair in schedule.pairs:
        places = sorted(rows[op][0] for op in pair)
        lanes = {int(table.lane[row]) for row in places}
        adjacent = places == list(range(places[0], places[0] + len(pair))) and len(lanes) == 1
        twice = [op for op in pair if op in seen]
        seen.update(pair)
        if not adjacent or twice:
            inside = [row for row in range(places[0], places[-1]) if row not in places]
            intruder = [table.op(row) for row in inside] if len(inside) == 1 else []
            text = "+".join(str(op) for op in pair)
            between = "".join(f", {op} is between them" for op in intruder)
            problem = (
                f"{twice[0]} is in two pairs"
                if twice
                else f"they are not neighbours in a lane{between}"
            )
            yield Finding(
                "annotation",
                (*intruder, *pair),
                int(table.device[places[0]]),
                f"the pair {text} cannot run braided: {problem}",
                "put the ops of a pair next to each other in one lane, each op in one pair",
            )


def _together(schedule: Schedule, rows: Rows) -> Iterator[Finding]:
    """Gangs stand in several lanes, loans on two devices and move at least one slice."""
    table = schedule.table
    for op in schedule.gangs:
        lanes = [int(table.lane[row]) for row in rows[op]]
        if len(set(lanes)) != len(lanes) or len(lanes) < 2:
            yield Finding(
                "annotation",
                (op,),
                int(table.device[rows[op][0]]),
                f"the gang {op} is in lanes {lanes}, but needs two or more different ones",
                f"put {op} once into each lane of its gang",
            )
    for loan in schedule.loans:
        devices = {int(table.device[rows[op][0]]) for op in loan[:2]}
        if len(devices) != 2 or loan.slices < 1 or loan.slices > loan.heavy.slice:
            yield Finding(
                "annotation",
                loan[:2],
                int(table.device[rows[loan.heavy][0]]),
                f"the loan of {loan.slices} slice(s) from {loan.heavy} to {loan.light} needs two "
                f"devices and between 1 and {loan.heavy.slice} slices",
                "lend past slices of the heavy op to an op of another device",
            )


def _shares(schedule: Schedule, rows: Rows) -> Iterator[Finding]:
    """Only offloads and loads have shares, above 0 and at most 1, equal for both ends."""
    given = dict(schedule.shares)
    for op, share in schedule.shares:
        twin = Op("L" if op.kind == "O" else "O", *op[1:])
        if op.kind not in "OL" or not 0 < share <= 1 or given.get(twin, share) != share:
            yield Finding(
                "annotation",
                (op,),
                int(schedule.table.device[rows[op][0]]),
                f"{op} has the share {share}, but a share belongs to an offload and its load, "
                "is above 0 and at most 1, and is the same for both",
                "correct the share",
            )

"""Do pairs, loans, gangs, after and shares name ops that exist and can obey them?"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import chain

import numpy as np

from penstock.check.finding import Finding
from penstock.core.meaning import ATTENDING
from penstock.core.named_rows import after_rows, are_pairs_braided, loan_rows
from penstock.core.ops import STAGE_KINDS, Op
from penstock.core.schedule import Loan, Schedule
from penstock.core.table import LETTERS

Rows = dict[Op, list[int]]
_ATTENDS = np.array([letter in ATTENDING for letter in LETTERS])
_OF_STAGES = np.array([letter in STAGE_KINDS for letter in LETTERS])


def annotations(schedule: Schedule) -> Iterator[Finding]:
    """Annotations that cannot be obeyed."""
    fields = (schedule.pairs, schedule.loans, schedule.gangs, schedule.after, schedule.shares)
    if not any(fields):
        return
    if _followable(schedule):
        return
    rows = schedule.table.rows_by_op
    missing = {*chain(*(ops for _, ops in _named(schedule)))} - rows.keys()
    absent = [
        (what, op) for what, ops in _named(schedule) if missing for op in ops if op in missing
    ]
    if absent:
        yield from (_absent(what, op) for what, op in absent[:8])
        return
    yield from _pairs(schedule, rows)
    yield from _gangs(schedule, rows)
    yield from _loans(schedule, rows)
    yield from _shares(schedule, rows)


def _followable(schedule: Schedule) -> bool:
    """Whether pairs, loans and `after`, the only annotations that there are, can be obeyed, as most
    can: who finds that they cannot has to name the ops."""
    if schedule.gangs or schedule.shares:
        return False
    pairs = are_pairs_braided(schedule) and bool((after_rows(schedule) >= 0).all())
    return pairs and (not schedule.loans or _are_loans_possible(schedule))


def _are_loans_possible(schedule: Schedule) -> bool:
    """Whether no loan has one of the faults that `_loans` tells."""
    table, rows = schedule.table, loan_rows(schedule)
    if table.repeats or (rows < 0).any():
        return False
    slices = np.array([loan.slices for loan in schedule.loans], np.int64)
    lent = np.zeros(len(table), np.int64)
    np.add.at(lent, rows[:, 0], slices)
    kind, (heavy, light) = table.kind[rows], rows.T
    computing = np.array([stream == "compute" for stream in table.lane_stream])
    fine = (table.device[heavy] != table.device[light]) & (slices >= 1)
    fine &= (lent <= table.slice)[heavy] & (lent[light] == 0)
    fine &= _ATTENDS[kind[:, 0]] & ~_OF_STAGES[kind[:, 1]] & computing[table.lane[rows]].all(axis=1)
    return bool(fine.all()) and len({loan[:2] for loan in schedule.loans}) == len(slices)


def _named(schedule: Schedule) -> list[tuple[str, Collection[Op]]]:
    """The ops that annotations name."""
    return [
        ("pair", [*chain(*schedule.pairs)]),
        ("loan", [op for loan in schedule.loans for op in loan[:2]]),
        ("gang", schedule.gangs),
        ("after", [*chain(*schedule.after)]),
        ("share", [op for op, _ in schedule.shares]),
    ]


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


def _gangs(schedule: Schedule, rows: Rows) -> Iterator[Finding]:
    """Gangs stand in several lanes."""
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


def _loans(schedule: Schedule, rows: Rows) -> Iterator[Finding]:
    """Loans stand on two devices, move at least one slice, and each op is on one side of them."""
    lent = Counter[Op]()
    for loan in schedule.loans:
        lent[loan.heavy] += loan.slices
    twice = {
        ends for ends, count in Counter(loan[:2] for loan in schedule.loans).items() if count > 1
    }
    for loan in schedule.loans:
        at = [rows[op][0] for op in loan[:2]]
        problem = _of_ends(schedule, loan, at, lent)
        if not problem and loan[:2] in twice:
            problem = "is there more than once"
        if problem:
            yield Finding(
                "annotation",
                loan[:2],
                int(schedule.table.device[at[0]]),
                f"the loan of {loan.slices} slice(s) from {loan.heavy} to {loan.light} {problem}",
                "lend past slices of an op, each once, to ops of other devices that lend nothing",
            )


def _of_ends(schedule: Schedule, loan: Loan, at: list[int], lent: Mapping[Op, int]) -> str:
    """What is wrong with the two ops of a loan, if anything is."""
    table, heavy, light = schedule.table, loan.heavy, loan.light
    if together := {heavy, light} & {*schedule.gangs}:
        return f"cannot be done: {min(together)} is a gang, whose members share its attention"
    if len({int(table.device[row]) for row in at}) != 2:
        return "needs two devices"
    if loan.slices < 1 or lent[heavy] > heavy.slice:
        return f"needs between 1 and {heavy.slice} slices, of {lent[heavy]} that it lends in all"
    if heavy.kind not in ATTENDING or light.kind in STAGE_KINDS:
        kinds = ", ".join(sorted(ATTENDING))
        return f"needs an op with attention ({kinds}), and one that works on a slice"
    if any(table.lane_stream[table.lane[row]] != "compute" for row in at):
        return "needs two ops of compute lanes"
    return f"cannot be done: {light} lends itself" if light in lent else ""


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

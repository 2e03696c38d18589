"""What lent attention work brings into the graph: reads of one op from the other, both ways.

The device that lends sends queries, keys and values and gets a partial result back; how much is in
them depends on the number of slices lent. Both ops run in lock-step, so these reads order nothing
beyond that; but they are transfers, and as such derived, planned and sent like any other.
"""

from penstock.core.buffers import Buf
from penstock.core.meaning import HELPER, LENDER, Meaning
from penstock.core.ops import Op
from penstock.core.rules import NUMBER_OF
from penstock.core.schedule import Loan, Schedule


def loan_edges(schedule: Schedule) -> list[tuple[int, int, int]]:
    """Edges (reader row, writer row, buffer) of all loans; missing ops are the checker's."""
    rows = schedule.table.rows_by_op if schedule.loans else {}
    return [
        (rows[reader][0], rows[writer][0], NUMBER_OF[name])
        for loan in schedule.loans
        if loan.heavy in rows and loan.light in rows
        for reader, writer, name in _reads(loan)
    ]


def _reads(loan: Loan) -> list[tuple[Op, Op, str]]:
    """Who reads what from whom."""
    ends: list[tuple[Op, Meaning]] = [(loan.heavy, LENDER), (loan.light, HELPER)]
    return [
        (reader, writer, ref.buffer)
        for reader, reading in ends
        for writer, writing in ends
        for ref in reading.reads
        if ref in writing.writes
    ]


def loans_by_rows(schedule: Schedule) -> dict[tuple[int, int], int]:
    """Number of the loan between two rows, whichever of them lends."""
    rows = schedule.table.rows_by_op if schedule.loans else {}
    found: dict[tuple[int, int], int] = {}
    for number, loan in enumerate(schedule.loans):
        ends = rows[loan.heavy][0], rows[loan.light][0]
        found[ends] = found[ends[::-1]] = number
    return found


def loan_buffer(schedule: Schedule, name: str, number: int) -> Buf:
    """The buffer instance of a loan."""
    heavy = schedule.loans[number].heavy
    return Buf(name, number, heavy.mb, heavy.slice)

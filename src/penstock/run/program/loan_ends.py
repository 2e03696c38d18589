"""Loans of attention work as their devices see them: with whom, about what, by which tags.

A loan has two ways, `lent` and `returned`. On each of them a message says that the op at that end
can start, and others follow, as many as the layers of the op that lends ask for. Their tags come
behind those of all transfers and orders: with L loans, message n of way w (0 or 1) of loan l has

    tag = first + 2 l + w + 2 L n
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.loans import loan_buffer
from penstock.core.meaning import HELPER, LENDER
from penstock.core.ops import Op
from penstock.core.program import Program
from penstock.run.program.calls import DROPPED, LoanEnd, Post
from penstock.run.program.order_messages import order_edges

_WAYS = tuple(meaning.writes[0].buffer for meaning in (LENDER, HELPER))


class LoanEnds(NamedTuple):
    """The loans of one device, by the row of its op."""

    lends: Mapping[int, tuple[LoanEnd, ...]]
    """In the order of the slices that are lent, from the beginning of the sequence."""
    helps: Mapping[int, tuple[LoanEnd, ...]]

    @classmethod
    def of(cls, program: Program, device: int) -> "LoanEnds":
        table, lent_before = program.schedule.table, defaultdict[Op, int](int)
        ends = defaultdict[int, list[LoanEnd]](list), defaultdict[int, list[LoanEnd]](list)
        first = (
            len(program.moves.reader) + len(order_edges(program)) if program.schedule.loans else 0
        )
        for number, loan in enumerate(program.schedule.loans):
            rows = [table.rows_by_op[op][0] for op in loan[:2]]
            slices = range(lent_before[loan.heavy], lent_before[loan.heavy] + loan.slices)
            lent_before[loan.heavy] = slices.stop
            for end, row in enumerate(rows):
                if table.device[row] == device:
                    peer = int(table.device[rows[1 - end]])
                    posts = _posts(program, number, peer, first)
                    step = 2 * len(program.schedule.loans)
                    made = LoanEnd(loan, slices, posts[end], posts[1 - end], step)
                    ends[end][row].append(made)
        return cls(*({row: tuple(found) for row, found in each.items()} for each in ends))


def _posts(program: Program, number: int, peer: int, first: int) -> list[Post]:
    """The first message of either way."""
    schedule = program.schedule
    unit = int(schedule.unit[schedule.table.rows_by_op[schedule.loans[number].heavy][0]])
    return [
        Post(peer, first + 2 * number + way, DROPPED, unit, loan_buffer(schedule, name, number))
        for way, name in enumerate(_WAYS)
    ]

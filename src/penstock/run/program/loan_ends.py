"""Help with attention work as its devices see it: with whom, about what, by which tags.

A help has two ways, `lent` and `returned`. On each of them a message says that the op at that end
can start, and others follow, as many as the layers of the op that is helped ask for. Their tags
come behind those of all transfers and orders: with H helps, message n of way w (0 or 1) of help h
has

    tag = first + 2 h + w + 2 H n
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.loans import helps_of, loan_buffer
from penstock.core.meaning import HELPER, LENDER
from penstock.core.program import Program
from penstock.run.program.calls import DROPPED, LoanEnd, Post
from penstock.run.program.order_messages import order_edges

_WAYS = tuple(meaning.writes[0].buffer for meaning in (LENDER, HELPER))


class LoanEnds(NamedTuple):
    """The helps of one device, by the row of its op."""

    lends: Mapping[int, tuple[LoanEnd, ...]]
    """In the order of what is lent, from the beginning of the sequence or of the slice."""
    helps: Mapping[int, tuple[LoanEnd, ...]]

    @classmethod
    def of(cls, program: Program, device: int) -> "LoanEnds":
        table = program.schedule.table
        ends = defaultdict[int, list[LoanEnd]](list), defaultdict[int, list[LoanEnd]](list)
        helps = helps_of(program.schedule)
        first = len(program.moves.reader) + len(order_edges(program)) if helps else 0
        for number, (*rows, share) in enumerate(helps):
            for end, row in enumerate(rows):
                if table.device[row] == device:
                    peer = int(table.device[rows[1 - end]])
                    posts = _posts(program, number, peer, first)
                    helped, helping = (table.op(each) for each in rows)
                    ways = posts[end], posts[1 - end]
                    made = LoanEnd(helped, helping, share, *ways, 2 * len(helps))
                    ends[end][row].append(made)
        return cls(*({row: tuple(found) for row, found in each.items()} for each in ends))


def _posts(program: Program, number: int, peer: int, first: int) -> list[Post]:
    """The first message of either way."""
    schedule = program.schedule
    unit = int(schedule.unit[helps_of(schedule)[number].helped])
    return [
        Post(peer, first + 2 * number + way, DROPPED, unit, loan_buffer(schedule, name, number))
        for way, name in enumerate(_WAYS)
    ]

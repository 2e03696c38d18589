"""What is under way between devices when early updates are confirmed, and may have to come again.

Where an update was wrong, every device drops what it has computed of the step and runs its lane
from the start. What others had sent until then is void: it is received and dropped, and comes
again. Nothing else may be under way at that moment, so receives of what is sent later are posted
behind the confirmation and not before.
"""

from typing import NamedTuple

from penstock.core.begun import begun_rows
from penstock.core.program import Program
from penstock.run.program.calls import Call, Lane, Post


class BegunTransfers(NamedTuple):
    """Transfers to one device that come from forwards in front of a confirmation."""

    tags: frozenset[int] = frozenset()
    unread: tuple[Post, ...] = ()
    """Those of them that no forward in front of the own confirmation reads."""

    @classmethod
    def of(cls, program: Program, lane: Lane) -> "BegunTransfers":
        """Those of a lane; the tags of orders are behind the numbers of transfers."""
        begun, moves = begun_rows(program.schedule), program.moves
        posts = (*lane.first, *(post for call in lane.calls for post in call.posts))
        moved = [post for post in posts if post.tag < len(moves.writer)]
        found = [post for post in moved if begun[moves.writer[post.tag]]]
        unread = tuple(post for post in found if not begun[moves.reader[post.tag]])
        return cls(frozenset(post.tag for post in found), unread)


def held_back(lane: Lane, begun: BegunTransfers) -> Lane:
    """The lane with receives of all but begun transfers posted behind its confirmations."""
    checks = [call.number for call in lane.calls if call.op.kind == "C"]
    if not checks:
        return lane
    late = [post for post in lane.first if post.tag not in begun.tags]
    calls = []
    for call in lane.calls:
        if call.number < checks[-1]:
            late += [post for post in call.posts if post.tag not in begun.tags]
            call = _posting(call, [post for post in call.posts if post.tag in begun.tags])
        elif call.number == checks[-1]:
            call = _posting(call, [*late, *call.posts])
        calls.append(call)
    first = tuple(post for post in lane.first if post.tag in begun.tags)
    return Lane(lane.device, tuple(calls), first, lane.places, lane.homes, lane.braids)


def _posting(call: Call, posts: list[Post]) -> Call:
    return call._replace(posts=tuple(posts))

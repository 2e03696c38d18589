"""What one device does in one step: calls, one after the other, with every name resolved.

The executor's loop should do as little as possible between two ops. So each buffer that the device
ever holds has a place in a list, and each op is a call that knows where its reads and writes are,
what has to be there before it runs, and what follows it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.buffers import Buf
from penstock.core.loans import GangShare
from penstock.core.ops import Op

NOTHING = 0
"""The place that is always empty: what an op does not have, it reads from here."""

DROPPED = 1
"""The place that nobody reads: what nobody wants is written here."""

FORWARDS = frozenset("FN")

PASSES = frozenset("EST")
"""Passes over a vocabulary shard without which there is no loss."""

COMING = frozenset({"x", "out"})
"""What moves between devices on the way forward."""


class Post(NamedTuple):
    """One transfer as its ends see it: the other device, a number, and what is moved."""

    peer: int
    tag: int
    place: int
    unit: int
    buf: Buf


class LoanEnd(NamedTuple):
    """Help with attention work as one of its two devices sees it."""

    helped: Op
    helping: Op
    """For a gang the same op, which stands in the lanes of both."""
    share: range | GangShare
    """The slices whose keys and values are lent, or the queries that a member of a gang has."""
    sent: Post
    """The first message to the other device; its unit is that of the op that is helped."""
    received: Post
    """The first message from there."""
    step: int
    """Between the tags of messages that follow each other."""

    def message(self, first: Post, number: int) -> Post:
        """A message of one way, by its number there."""
        return first._replace(tag=first.tag + number * self.step)


class Join(NamedTuple):
    """This device's share of a collective: its parts, and where what they come to goes."""

    buf: Buf
    members: tuple[int, ...]
    """Devices that have parts of it."""
    parts: tuple[int, ...]
    total: int
    read: bool = True
    """Whether an op of this device reads the total."""
    awaits: tuple[int, ...] = ()
    """Calls that have written parts of it on other streams than the call that joins."""

    @property
    def ticket(self) -> int:
        """What those who read the total wait for; calls have the numbers from 0 up."""
        return -self.total


class Call(NamedTuple):
    """One op and everything around it."""

    number: int
    """Its turn in the host order of the device."""
    row: int
    op: Op
    unit: int
    """Slice of a microbatch, numbered through; -1 for ops of a whole stage."""
    stream: str
    reads: tuple[int, ...]
    """Places of the buffers that the op's kind reads, in the order of the meaning table."""
    writes: tuple[int, ...]
    waits: tuple[Post, ...]
    """Transfers that must have arrived before the op can run."""
    awaits: tuple[int, ...]
    """Calls of the device's other streams, and sums, that must have ended before."""
    awaited: bool
    """Whether a call of another stream waits for this one."""
    sends: tuple[Post, ...]
    frees: tuple[int, ...]
    posts: tuple[Post, ...]
    """Receives that can be posted once the op has run."""
    joins: tuple[Join, ...]
    """Sums whose last part on this device the op has written."""
    lends: tuple[LoanEnd, ...] = ()
    """Loans of its attention to other devices."""
    helps: tuple[LoanEnd, ...] = ()
    """Loans of other devices that are computed beside it."""
    away: bool = False
    """Whether it does nothing but help: the op of a gang whose stage is on another device."""

    @property
    def meets(self) -> tuple[LoanEnd, ...]:
        """Loans whose other ops start when this one does."""
        return self.lends + self.helps


@dataclass(frozen=True)
class Lane:
    """The calls of one device, in host order."""

    device: int
    calls: tuple[Call, ...]
    first: tuple[Post, ...]
    """Receives that are posted before anything runs."""
    places: int
    """Length of the list of values."""
    homes: Mapping[tuple[str, int], int]
    """Places of what belongs to a stage and outlives the step: its weight and its gradient."""
    braids: Mapping[int, tuple[int, ...]]
    """Numbers of the calls that run braided, by the first of them."""

    def without(self, kinds: str) -> "Lane":
        """The lane without the ops of some kinds, whose results nobody else reads."""
        kept = tuple(call for call in self.calls if call.op.kind not in kinds)
        return Lane(self.device, kept, self.first, self.places, self.homes, self.braids)


def forward_lane(lane: Lane) -> Lane:
    """The lane with its forwards and their gathers alone, for evaluation; keys and values go with
    the last slice, and what a backward would need is dropped at once.

    A part of an order that nothing blocks is blocked by nothing, and a receive is posted when an
    earlier forward has freed its slot, so what is left is as safe as the whole.
    """
    forwards = {call.number: call for call in lane.calls if call.op.kind in FORWARDS | PASSES}
    gone = {
        place
        for call in lane.calls
        for join in call.joins
        if _goes_back(join)
        for place in join.parts
    }
    last = {(call.op.stage, call.op.mb): n for n, call in forwards.items() if _is_forward(call)}
    awaits = _gathers_of(lane)
    gathers = {gather: _held_back(lane.calls[gather], forwards) for (gather,) in awaits.values()}
    held = {number for call in gathers.values() for number in call.awaits}
    light = {
        number: _light(call, last, gone)._replace(
            awaits=(*awaits.get(number, ()), *(each for each in call.awaits if each < 0)),
            awaited=number in held,
        )
        for number, call in forwards.items()
    }
    calls = tuple(call for _, call in sorted((light | gathers).items()))
    first = tuple(post for post in lane.first if post.buf.name in COMING)
    return Lane(lane.device, calls, first, lane.places, lane.homes, {})


def _is_forward(call: Call) -> bool:
    return call.op.kind in FORWARDS and not call.away


def _goes_back(join: Join) -> bool:
    """Whether a collective brings what only a backward needs."""
    return join.buf.name == "gpart"


def _light(call: Call, last: Mapping[tuple[int, int], int], gone: Collection[int]) -> Call:
    """A forward that keeps nothing, or a pass over a shard that takes part in no gradient; the last
    two writes of a forward are what a backward would need."""
    joins = tuple(join for join in call.joins if not _goes_back(join))
    posts = tuple(post for post in call.posts if post.buf.name in COMING)
    writes = tuple(DROPPED if place in gone else place for place in call.writes)
    call = call._replace(joins=joins, posts=posts, writes=writes)
    call = call._replace(lends=_forwards(call.lends), helps=_forwards(call.helps))
    if not _is_forward(call):
        return call
    *outputs, keys_and_values, skip, _, _ = call.writes
    ends = call.number == last[call.op.stage, call.op.mb]
    frees = (*call.frees, keys_and_values) if ends else call.frees
    writes = (*outputs, keys_and_values, skip, DROPPED, DROPPED)
    return call._replace(writes=writes, frees=frees)


def _forwards(ends: tuple[LoanEnd, ...]) -> tuple[LoanEnd, ...]:
    """Loans between two forwards; what else would help is not run."""
    return tuple(end for end in ends if {end.helped.kind, end.helping.kind} <= FORWARDS)


def _gathers_of(lane: Lane) -> dict[int, tuple[int]]:
    """For forwards that are the first to read what a gather brings, its number: it is the last one
    before them that writes what they read."""
    newest: dict[int, int] = {}
    found: dict[int, tuple[int]] = {}
    for call in lane.calls:
        if call.op.kind == "G":
            newest[call.writes[0]] = call.number
        elif call.op.kind in FORWARDS | PASSES and not call.away and call.reads[-1] in newest:
            found[call.number] = (newest.pop(call.reads[-1]),)
    return found


def _held_back(gather: Call, forwards: Mapping[int, Call]) -> Call:
    """A gather that waits for the last forward up to each call that it would wait for: all that
    have used its buffer stand there or before."""
    ends = (max((f for f in forwards if f <= awaited), default=-1) for awaited in gather.awaits)
    awaits = tuple(end for end in ends if end >= 0)
    return gather._replace(awaits=awaits, awaited=True, joins=())

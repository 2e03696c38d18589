"""Where a rank is, cheap to say at every op and put into words only when somebody asks.

The main thread writes one attribute before every wait and every op. The texts are made by the side
thread that tells the other ranks, or when an error is reported.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from penstock.check.explain import piece
from penstock.run.program.calls import Call, Lane, Post, forward_lane

NOBODY = -1
EVERYBODY = -2
"""Whom a rank waits for that takes part in something all ranks do together."""
BEFORE = "before the first step"
COLLECTIVES = {"V": "add up their gradients", "U": "add up the loss and the norm"}
"""What all ranks do together while a call of a kind waits for it."""
WITH_SHARDED_WEIGHTS = "gather weights and add up gradients"
"""The same for all other kinds: of stages whose weights are sharded."""


class Position(NamedTuple):
    """Where a rank is, in words; `owes` is the rank it waits for, or EVERYBODY, or NOBODY."""

    text: str = "starts"
    """What it does: "runs 2F3.1", "waits for ... from rank 1", "saves"."""
    where: str = ""
    """Op, and how far that is: "2F3.1 (op 17 of 40 of step 12)"."""
    awaited: str = ""
    """The buffer it waits for, or what all ranks are to do."""
    owes: int = NOBODY
    files: bool = False
    """Whether files are read or written, which takes as long as there is to read or write."""
    steady: bool = False
    """Whether it is inside of a step, where nothing holds the interpreter for long."""


class Phase(NamedTuple):
    """What is done outside of a lane."""

    text: str
    awaited: str = ""
    owes: int = NOBODY
    files: bool = False


def at(where: str) -> str:
    """A place as it stands in a sentence.

    >>> at("step 3, while it saves"), at("before the first step, while it starts")
    ('at step 3, while it saves', 'before the first step, while it starts')
    """
    return where if where.startswith(BEFORE) else f"at {where}"


class Tracker:
    """Follows the main thread of a rank; an observer of its executor."""

    def __init__(self) -> None:
        self.step = 0
        """Training step, set by whoever counts them; 0 before the first."""
        self.at: tuple[Call, Post | None] | Phase | str = "starts"
        """The call of the lane and what it waits for; or, outside of the lane, what is done."""
        self._lane: Lane | None = None
        self._ends: frozenset[int] = frozenset()
        """Rows after which the main thread has nothing to do but to wait: for what was sent and has
        not arrived, and for updates on the host, which need the norms of all."""
        self._rank_of: Callable[[int], int] = int

    def follow(self, lane: Lane, rank_of: Callable[[int], int]) -> None:
        """Say where in this lane the rank is; `rank_of` is the rank of a device."""
        self._lane, self._rank_of = lane, rank_of
        self._ends = frozenset(map(_last_computed, (lane, forward_lane(lane))))

    def waits(self, call: Call, post: Post) -> None:
        self.at = (call, post)

    def joins(self, call: Call) -> None:
        self.at = _for_all(COLLECTIVES.get(call.op.kind, WITH_SHARDED_WEIGHTS))

    def copies(self, call: Call) -> None:
        self.at = Phase(f"waits for a copy to or from the host before {call.op}")

    def runs(self, call: Call) -> None:
        self.at = (call, None)

    resumes = runs

    def ran(self, call: Call) -> None:
        if call.row in self._ends:
            self.at = _for_all("take what it has sent")
        else:
            self.at = (call, None)  # a new object: the count of ops moves

    def handles_files(self, text: str) -> None:
        """From here on files are read or written: that is never too slow."""
        self.at = Phase(text, files=True)

    @contextmanager
    def gathers(self, what: str) -> Iterator[None]:
        """In the block this rank waits for all to do something: "add up their gradients"."""
        with self._waiting(_for_all(what)):
            yield

    @contextmanager
    def gathers_files(self, what: str) -> Iterator[None]:
        """In the block all ranks read or write together, and wait for each other."""
        with self._waiting(_for_all(what)._replace(files=True)):
            yield

    @contextmanager
    def _waiting(self, phase: Phase) -> Iterator[None]:
        """An error leaves the rank where it was: that is the place to report."""
        before, self.at = self.at, phase
        yield
        self.at = _anew(before)

    def position(self) -> Position:
        """The place in words."""
        here = self.at  # read once: the main thread goes on meanwhile
        if isinstance(here, str):
            here = Phase(here)
        if isinstance(here, Phase):
            when = f"step {self.step}" if self.step else BEFORE
            steady = self.step > 0 and here.owes == EVERYBODY and not here.files
            return Position(here.text, f"{when}, while it {here.text}", *here[1:], steady=steady)
        call, post = here
        where = f"{call.op}{self._place(call)}"
        if post is None:
            return Position(f"runs {call.op}", where, steady=True)
        rank = self._rank_of(post.peer)
        awaited = f"waits for {post.buf} from rank {rank}"
        return Position(awaited, where, str(post.buf), rank, steady=True)

    def _place(self, call: Call) -> str:
        if self._lane is None:
            return f" (step {self.step})"
        return f" (op {call.number + 1} of {len(self._lane.calls)} of step {self.step})"

    def picture(self) -> str:
        """The lane around the op with an arrow at it; nothing outside of a lane."""
        if isinstance(self.at, str | Phase) or self._lane is None:
            return ""
        ops = [call.op for call in self._lane.calls]
        op = self.at[0].op
        return piece(f"device {self._lane.device}:", ops, [ops.index(op)], op)


def _for_all(what: str) -> Phase:
    return Phase(f"waits for all ranks to {what}", what, EVERYBODY)


def _anew(at: tuple[Call, Post | None] | Phase | str) -> tuple[Call, Post | None] | Phase:
    """The same place as another object: it was come to again, and its seconds count from there."""
    if isinstance(at, str):
        return Phase(at)
    return Phase(*at) if isinstance(at, Phase) else (at[0], at[1])


def _last_computed(lane: Lane) -> int:
    """The last row of a lane that the main thread runs."""
    return [call.row for call in lane.calls if call.stream == "compute"][-1]

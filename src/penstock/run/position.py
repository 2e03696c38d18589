"""Where a rank is, cheap to say at every op and put into words only when somebody asks.

The main thread writes one attribute before every wait and every op. The texts are made by the side
thread that tells the other ranks, or when an error is reported.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.check.explain import piece
from penstock.run.compiled import Lane, Post, Step

NOBODY = -1


class Position(NamedTuple):
    """Where a rank is, in words; `owes` is the rank it waits for, or NOBODY."""

    text: str = "starts"
    """What it does: "runs 2F3.1", "waits for ... from rank 1", "saves"."""
    where: str = ""
    """Op, and how far that is: "2F3.1 (op 17 of 40 of step 12)"."""
    awaited: str = ""
    """The buffer it waits for."""
    owes: int = NOBODY


class Tracker:
    """Follows the main thread of a rank; an observer of its executor."""

    def __init__(self) -> None:
        self.step = 0
        """Training step, set by whoever counts them."""
        self.at: tuple[Step, Post | None] | str = "starts"
        """The step of the lane and what it waits for; or, outside of the lane, what is done."""
        self._lane: Lane | None = None
        self._rank_of: Callable[[int], int] = int

    def follow(self, lane: Lane, rank_of: Callable[[int], int]) -> None:
        """Say where in this lane the rank is; `rank_of` is the rank of a device."""
        self._lane, self._rank_of = lane, rank_of

    def waits(self, step: Step, post: Post) -> None:
        self.at = (step, post)

    def runs(self, step: Step) -> None:
        self.at = (step, None)

    def ran(self, step: Step) -> None:
        self.at = (step, None)  # a new object: the count of ops moves

    def position(self) -> Position:
        """The place in words."""
        at = self.at
        if isinstance(at, str):
            return Position(at, f"step {self.step}: {at}")
        step, post = at
        where = f"{step.op}{self._place(step)}"
        if post is None:
            return Position(f"runs {step.op}", where)
        rank = self._rank_of(post.peer)
        return Position(f"waits for {post.buf} from rank {rank}", where, str(post.buf), rank)

    def _place(self, step: Step) -> str:
        if self._lane is None:
            return f" (step {self.step})"
        steps = self._lane.steps
        return f" (op {step.row - steps[0].row + 1} of {len(steps)} of step {self.step})"

    def picture(self) -> str:
        """The lane around the op with an arrow at it; nothing outside of a lane."""
        if isinstance(self.at, str) or self._lane is None:
            return ""
        ops = [step.op for step in self._lane.steps]
        op = self.at[0].op
        return piece(f"device {self._lane.device}:", ops, [ops.index(op)], op)

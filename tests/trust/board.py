"""The game itself: lanes advance when everything their next work wants lies on the table.

Work only ever adds tokens, so what can move now can still move later, whatever moves first: all
orders of moves end in the same position, and `run` needs to follow only one of them. `endings`
follows all of them instead, to test that argument on small plays.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from .world import KINDS, Place, Token, Work, World, given_by, wanted_by


@dataclass(frozen=True)
class Play:
    """A schedule as plain data: lanes, and notes about work that belongs together."""

    world: World
    lanes: Mapping[Place, Sequence[Work]]
    pairs: tuple[tuple[Work, ...], ...] = ()
    """Work of one lane that is done braided: starts together, ends together."""
    loans: tuple[tuple[Work, Work], ...] = ()
    """Work of two lanes that starts together and ends together."""
    gangs: frozenset[Work] = frozenset()
    """Work that stands in several lanes and is done by all of them at once."""
    after: tuple[tuple[Work, Work], ...] = ()
    """Work, and earlier work that must have been done before."""

    def __post_init__(self) -> None:
        strange = {work[0] for work in self.places} - set(KINDS)
        if strange:
            raise ValueError(f"the explorer does not know work of kind {strange}")

    @cached_property
    def places(self) -> dict[Work, list[Place]]:
        """Every place where a piece of work stands, once for each time."""
        found: dict[Work, list[Place]] = defaultdict(list)
        for place, works in self.lanes.items():
            for work in works:
                found[work].append(place)
        return dict(found)

    @cached_property
    def bundles(self) -> dict[Work, frozenset[Work]]:
        """Everything that starts and ends together with a work, for work that is not alone."""
        found: dict[Work, frozenset[Work]] = {}
        for group in (*self.pairs, *self.loans):
            joined = frozenset(group).union(*(found.get(work, frozenset()) for work in group))
            found.update(dict.fromkeys(joined, joined))
        return found

    @cached_property
    def earlier(self) -> dict[Work, set[Work]]:
        """What the notes hold each work back for."""
        found: dict[Work, set[Work]] = defaultdict(set)
        for work, first in self.after:
            found[work].add(first)
        return found

    def wanted(self, work: Work) -> list[Token]:
        """Tokens that `work` waits for."""
        returns = ("L", *work[1:]) in self.places
        return wanted_by(self.world, work, returns=returns)


@dataclass
class Board:
    """A position of the game: how far each lane is, what is done, and what lies on the table."""

    play: Play
    at: dict[Place, int] = field(default_factory=dict)
    done: set[Work] = field(default_factory=set)
    table: set[Token] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.at = self.at or dict.fromkeys(self.play.lanes, 0)

    def copy(self) -> "Board":
        return Board(self.play, dict(self.at), set(self.done), set(self.table))

    def key(self) -> Any:
        """What tells positions apart; the rest follows from how far the lanes are."""
        return tuple(self.at.values())

    def heads(self) -> list[Work]:
        """The next work of every lane that is not at its end."""
        lanes = self.play.lanes.items()
        return [lane[self.at[place]] for place, lane in lanes if self.at[place] < len(lane)]

    def moves(self) -> Iterable[Any]:
        """Every bundle of work that may be done now."""
        bundles = {self.play.bundles.get(work, frozenset([work])) for work in self.heads()}
        return [bundle for bundle in bundles if self.may_start(bundle)]

    def may_start(self, bundle: frozenset[Work]) -> bool:
        return self._in_front(bundle) and all(
            self.table.issuperset(self.play.wanted(work))
            and self.play.earlier.get(work, set()) <= self.done
            for work in bundle
        )

    def _in_front(self, bundle: frozenset[Work]) -> bool:
        """Whether nothing else stands before the bundle in any of its lanes."""
        places = [place for work in bundle for place in self.play.places[work]]
        return all(
            bundle.issuperset(self.play.lanes[place][self.at[place] :][: places.count(place)])
            for place in places
        )

    def make(self, move: Any) -> None:
        """Do the work of a bundle."""
        for work in move:
            for place in self.play.places[work]:
                self.at[place] += 1
            self.done.add(work)
            self.table.update(given_by(work))


Position = TypeVar("Position", bound=Board)


def run(board: Position) -> Position:
    """Move until nothing moves. Moves never take each other's place, so all are made at once."""
    while moves := list(board.moves()):
        for move in moves:
            board.make(move)
    return board


def endings(board: Board) -> tuple[set[frozenset[Work]], int]:
    """The work left in front in every end that any order of moves reaches, and all positions."""
    seen = {board.key()}
    found: set[frozenset[Work]] = set()
    waiting = [board]
    while waiting:
        position = waiting.pop()
        moves = list(position.moves())
        if not moves:
            found.add(frozenset(position.heads()))
        for move in moves:
            then = position.copy()
            then.make(move)
            if then.key() not in seen:
                seen.add(then.key())
                waiting.append(then)
    return found, len(seen)

"""Heartbeats: what each rank tells the others, and how long each has been silent.

Silence is counted in the listener's own rounds, never read off a clock: a listener that was stopped
itself (by a signal, or by a machine that is too busy) has heard nothing either, and must not blame
the others for it.
"""

import json
from math import inf
from typing import NamedTuple

from torch._C._distributed_c10d import Store

from penstock.run.process.neighbour import stopped_siblings
from penstock.run.watchdog.position import NOBODY, Position, at

WATCHED = 8
"""Ranks that each rank listens to, so that the store is not asked world x world questions."""
REGULAR = 10
"""Beats from inside of steps after which it is known how late they may be."""
UNUSUAL = 3
"""How many times the longest silence so far is unusual."""


class Beat(NamedTuple):
    """What a rank says about itself."""

    number: int = 0
    """Moves on with every beat."""
    still: float = 0.0
    """Seconds for which it has been at the same place."""
    text: str = "starts"
    where: str = ""
    awaited: str = ""
    owes: int = NOBODY
    files: bool = False
    steady: bool = False
    left: bool = False
    """Whether it has done its part and left."""
    process: str = ""
    """By which its neighbours on the same machine know it."""

    @classmethod
    def of(cls, position: Position, number: int, still: float) -> "Beat":
        return cls(number, still, *position)

    @property
    def place(self) -> str:
        """The op, or what is done outside of a lane, as it stands in a sentence.

        >>> Beat(3, where="2F3.1 (op 17 of 40 of step 12)").place, Beat(3).place
        ('at 2F3.1 (op 17 of 40 of step 12)', 'when it starts')
        """
        return at(self.where) if self.where else f"when it {self.text}"


def send(store: Store, rank: int, beat: Beat) -> None:
    store.set(_key(rank), json.dumps(beat))


def hear(store: Store, ranks: list[int]) -> dict[int, Beat]:
    """The last beat of each rank that has beaten at all; never waits for one."""
    known = [rank for rank in ranks if store.check([_key(rank)])]
    values = store.multi_get([_key(rank) for rank in known]) if known else []
    return {rank: Beat(*json.loads(value)) for rank, value in zip(known, values)}


def _key(rank: int) -> str:
    return f"beat/{rank}"


class Ear:
    """Listens to some ranks, adds up their silence, and learns how regular their beats are."""

    def __init__(self, rank: int, world: int) -> None:
        self.others = [(rank + far) % world for far in range(1, min(WATCHED, world - 1) + 1)]
        self.beats: dict[int, Beat] = {}
        self.silence = dict.fromkeys(self.others, 0.0)
        self._steady = dict.fromkeys(self.others, 0)
        """Beats from inside of steps, one after the other."""
        self._longest = dict.fromkeys(self.others, 0.0)
        """Seconds of the longest silence between two of these."""
        self.stopped: dict[int, float] = {}
        """Seconds that a neighbour which has never beaten is stopped."""

    def listen(self, store: Store, elapsed: float) -> None:
        """One round, `elapsed` seconds after the last one."""
        heard = hear(store, self.others)
        for rank in self.others:
            new, old = heard.get(rank, Beat()), self.beats.get(rank, Beat())
            moved = new.number != old.number or new.left
            if moved and old.steady and new.steady:
                self._steady[rank] += 1
                self._longest[rank] = max(self._longest[rank], self.silence[rank])
            self.silence[rank] = 0.0 if moved else self.silence[rank] + elapsed
        self.beats |= heard
        unheard = [rank for rank in self.others if rank not in self.beats]
        stopped = stopped_siblings(unheard) if unheard else ()
        self.stopped = {rank: self.stopped.get(rank, 0.0) + elapsed for rank in stopped}

    def unusual(self, rank: int) -> float:
        """Seconds of silence that a rank has never come near, now that it is inside of a step;
        infinite where that is not known."""
        regular = self._steady[rank] >= REGULAR and self.beats[rank].steady
        return UNUSUAL * self._longest[rank] if regular else inf

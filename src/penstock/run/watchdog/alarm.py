"""When a run has to be given up, and the sentence that says why.

Two things look alike from outside, because everybody waits: a rank that is silent (dead, frozen,
without its interpreter) and one that beats but does not move. Whom the others wait for, directly,
along a chain or in something that all do together, is to blame.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from penstock.run.process.neighbour import GONE, STOPPED, THERE, UNKNOWN, state_of
from penstock.run.process.store import MEETING
from penstock.run.watchdog.heartbeat import Beat, Ear
from penstock.run.watchdog.position import EVERYBODY, NOBODY

Beats = Mapping[int, Beat]


class Patience(NamedTuple):
    """Seconds after which a rank is given up."""

    silent: float = 60.0
    """Without a beat, whatever the reason."""
    stuck: float = 600.0
    """With beats, but at one place while others wait for it: the longest that an op may take."""
    frozen: float = 3.5
    """Without a beat, and its process is stopped or gone, or its beats were regular so far."""
    meeting: float = MEETING.total_seconds()
    """Without ever a beat: it has not come."""

    @property
    def shortest(self) -> float:
        """Of silence."""
        return min(self.silent, self.frozen, self.meeting)


def silent(ear: Ear, beats: Beats, patience: Patience) -> str:
    """The rank that has been silent for too long, and who waits for it."""
    for rank, seconds in ear.stopped.items():
        if seconds >= patience.frozen:
            since = f"rank {rank} has been stopped for {seconds:.1f} s"
            return f"{since}, before its first beat{who_waits(rank, beats)}"
    late = [rank for rank in ear.others if ear.silence[rank] >= silence_limit(ear, rank, patience)]
    rank = max(late, key=lambda other: ear.silence[other], default=NOBODY)
    if rank == NOBODY:
        return ""
    if rank not in ear.beats:
        since = f"rank {rank} has been silent for {ear.silence[rank]:.1f} s"
        return f"{since} and has never sent a heartbeat"
    state = state_of(ear.beats[rank].process)
    how = state if state in (STOPPED, GONE) else "silent"
    since = f"rank {rank} has been {how} for {ear.silence[rank]:.1f} s"
    return f"{since}, last seen {ear.beats[rank].place}{who_waits(rank, beats)}"


def silence_limit(ear: Ear, rank: int, patience: Patience) -> float:
    """Seconds of silence after which a rank is given up.

    A neighbour that is there may be busy with something that holds its interpreter. Of a rank on
    another machine nothing is known but how regular it was.
    """
    if rank not in ear.beats:
        return patience.meeting
    state = state_of(ear.beats[rank].process)
    if state == THERE:
        return patience.silent
    unusual = ear.unusual(rank) if state == UNKNOWN else 0.0
    return min(patience.silent, max(patience.frozen, unusual))


def stuck(beats: Beats, patience: Patience) -> str:
    """The rank at which the waiting of others ends, when neither it nor they move."""
    still = {rank: beats[rank] for rank in sorted(beats) if beats[rank].still >= patience.stuck}
    rank = _culprit(still)
    if rank != NOBODY:
        since = f"rank {rank} has been stuck for {still[rank].still:.1f} s"
        return f"{since}{_doing(still[rank])}{who_waits(rank, beats)}"
    return _standstill(beats, still)


def _culprit(still: Beats) -> int:
    """Where a chain ends at a rank that waits for nobody; else who does not come to what all do
    together; else a rank of a circle."""
    ends = [chain[-1] for chain in (_chain(rank, still) for rank in still) if len(chain) > 1]
    ends = [end for end in ends if end in still and not still[end].files]
    busy = [end for end in ends if still[end].owes == NOBODY]
    if not busy and any(beat.owes == EVERYBODY for beat in still.values()):
        busy = [rank for rank, beat in still.items() if beat.owes == NOBODY and not beat.files]
        busy.sort(key=lambda rank: -still[rank].still)
    circles = [end for end in ends if still[end].owes >= 0]
    return next(iter((*busy, *circles)), NOBODY)


def _chain(rank: int, still: Beats) -> list[int]:
    """From a rank to whom it waits for and so on; ends where a rank waits for nobody or for all, or
    a circle closes."""
    chain = [rank]
    while chain[-1] in still and still[chain[-1]].owes >= 0:
        after = still[chain[-1]].owes
        chain.append(after)
        if after in chain[:-1]:
            break
    return chain


def _standstill(beats: Beats, still: Beats) -> str:
    """All ranks wait and none is left to wait for: something that was sent has not arrived."""
    there = {rank: beat for rank, beat in beats.items() if not beat.left}
    if len(there) < 2 or any(
        rank not in still or beat.owes == NOBODY or beat.files for rank, beat in there.items()
    ):
        return ""
    since = min(beat.still for beat in there.values())
    return f"all ranks have waited for each other for {since:.1f} s: {'; '.join(_together(there))}"


def _doing(beat: Beat) -> str:
    """What a rank does and where; once, where the place says what is done."""
    if beat.place.endswith(beat.text):
        return f", {beat.place}"
    return f": it {beat.text}, {beat.place}"


def who_waits(rank: int, beats: Beats) -> str:
    """Who waits for a rank, and for what."""
    others = {other: beats[other] for other in sorted(beats) if not beats[other].left}
    told = [
        f"rank {other} waits for {beat.awaited} from it"
        for other, beat in others.items()
        if beat.owes == rank
    ]
    for_all = {other: beat for other, beat in others.items() if beat.owes == EVERYBODY}
    for_all.pop(rank, None)
    return "".join(f"; {words}" for words in (*told, *_together(for_all)))


def _together(beats: Beats) -> list[str]:
    """What ranks do, those that do the same in one sentence."""
    ranks_at: dict[str, list[int]] = {}
    for rank, beat in sorted(beats.items()):
        ranks_at.setdefault(beat.text, []).append(rank)
    return [
        f"rank {ranks[0]} {text}"
        if len(ranks) == 1
        else f"ranks {spell_ranks(ranks)} {text.replace('waits', 'wait', 1)}"
        for text, ranks in ranks_at.items()
    ]


def spell_ranks(ranks: Iterable[int]) -> str:
    """Ranks in order, neighbours as a range.

    >>> spell_ranks([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    runs = [
        [rank for _, rank in run]
        for _, run in groupby(enumerate(ranks), key=lambda pair: pair[1] - pair[0])
    ]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)

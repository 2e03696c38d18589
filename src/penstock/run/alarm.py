"""When a run has to be given up, and the sentence that says why.

Two things look alike from outside, because everybody waits: a rank that is silent (dead, frozen,
without its interpreter) and one that beats but does not move. Whom the others wait for, directly or
along a chain, is to blame.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.run.beat import Beat, Ear
from penstock.run.position import NOBODY


class Patience(NamedTuple):
    """Seconds after which a rank is given up."""

    silent: float = 60.0
    """Without a beat."""
    stuck: float = 600.0
    """With beats, but at one place while others wait for it: the longest that an op may take."""


def silent(ear: Ear, beats: Mapping[int, Beat], patience: Patience) -> str:
    """The rank that has been silent for too long, and who waits for it."""
    rank = max(ear.others, key=lambda other: ear.silence[other], default=NOBODY)
    if rank == NOBODY or ear.silence[rank] < patience.silent:
        return ""
    since = f"rank {rank} is silent since {ear.silence[rank]:.1f} s"
    if rank not in ear.beats:
        return f"{since} and has never given a sign of life"
    return f"{since}, last heard at {ear.beats[rank].place}{waiting(rank, beats)}"


def stuck(beats: Mapping[int, Beat], patience: Patience) -> str:
    """The rank at which a chain of waiting ranks ends, when none of them moves."""
    still = {rank: beat for rank, beat in beats.items() if beat.still >= patience.stuck}
    for rank in sorted(still):
        chain = _chain(rank, still)
        end = chain[-1]
        if len(chain) > 1 and end in still:
            beat = still[end]
            return (
                f"rank {end} is stuck since {beat.still:.1f} s: it {beat.text}, at {beat.place}"
                f"{waiting(end, still)}"
            )
    return ""


def _chain(rank: int, still: Mapping[int, Beat]) -> list[int]:
    """From a rank to whom it waits for and so on; ends where a rank waits for nobody, or a circle
    closes."""
    chain = [rank]
    while chain[-1] in still and still[chain[-1]].owes != NOBODY:
        after = still[chain[-1]].owes
        chain.append(after)
        if after in chain[:-1]:
            break
    return chain


def waiting(rank: int, beats: Mapping[int, Beat]) -> str:
    """Who waits for a rank, and for what."""
    return "".join(
        f"; rank {other} waits for {beat.awaited} from it"
        for other, beat in sorted(beats.items())
        if beat.owes == rank and not beat.left
    )

"""Lengths put into as few bins of one size as are found.

The smallest number that could hold all is tried first, then one more, and so on. Some bins may be
there already, with less room: they are filled too and cost nothing.
"""

from collections.abc import Mapping, Sequence

SEARCH_STEPS = 40_000
"""Bins looked at for one number of them before the search gives up and one more is taken."""
SEARCHED_EXACTLY = 200
"""Lengths up to which every way to place them is tried; with more, greedy ones are."""

Bins = list[list[int]]
"""Numbers of the lengths in each bin."""


def fewest_bins(lengths: Mapping[int, int], size: int, rooms: Sequence[int] = ()) -> Bins:
    """The numbers in each bin: first those of bins with these rooms, then of new ones.

    >>> fewest_bins({0: 3, 1: 2, 2: 2}, 4, rooms=[2])
    [[2], [0], [1]]
    """
    queue = sorted(lengths, key=lambda number: (-lengths[number], number))
    bins: Bins | None = None
    count = max(-(-(sum(lengths.values()) - sum(rooms)) // size), 0)
    while bins is None:
        room = [*rooms, *[size] * count]
        bins = (
            _greedy(queue, lengths, [*room], fullest=-1)
            or _greedy(queue, lengths, [*room], fullest=1)
            or _search(queue, lengths, room)
        )
        count += 1
    sorted_bins = [sorted(members) for members in bins]
    there, new = sorted_bins[: len(rooms)], sorted_bins[len(rooms) :]
    return [*there, *sorted(members for members in new if members)]


def _greedy(
    queue: Sequence[int], lengths: Mapping[int, int], room: list[int], *, fullest: int
) -> Bins | None:
    """Each length into the fullest bin that takes it (1), or into the emptiest (-1)."""
    bins: Bins = [[] for _ in room]
    for number in queue:
        fitting = [bin for bin, left in enumerate(room) if left >= lengths[number]]
        if not fitting:
            return None
        chosen = min(fitting, key=lambda bin: fullest * room[bin])
        bins[chosen].append(number)
        room[chosen] -= lengths[number]
    return bins


def _search(queue: Sequence[int], lengths: Mapping[int, int], room: list[int]) -> Bins | None:
    """Every way to place the lengths, up to a number of steps."""
    bins: Bins = [[] for _ in room]
    steps = iter(range(SEARCH_STEPS // max(len(room), 1)))

    def place(turn: int) -> bool:
        if turn == len(queue):
            return True
        number = queue[turn]
        # Bins with equal room are one choice.
        choices = {left: bin for bin, left in enumerate(room) if left >= lengths[number]}
        for bin in choices.values():
            if next(steps, None) is None:
                return False
            bins[bin].append(number)
            room[bin] -= lengths[number]
            if place(turn + 1):
                return True
            bins[bin].pop()
            room[bin] += lengths[number]
        return False

    return bins if len(queue) <= SEARCHED_EXACTLY and place(0) else None

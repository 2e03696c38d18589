"""A batch as microbatches that the memory of all ranks holds.

Memory grows with tokens and attention with their squares, so sequences of one microbatch should be
alike: a long one among short ones would wait for memory, or the short ones for the long one. So the
sequences are sorted, longest first, and cut into runs whose largest number of tokens is as small as
it can be.

    lengths 16 16 4 4 4 4 2 2 2 2 2 2 2 2 in 3 runs:  {16} {16 4 4} {4 4 and eight 2}, at most 24

Source: arXiv:2412.01523, section 4.4.
"""

from collections.abc import Callable, Sequence

from penstock.errors import ShapeError

Runs = list[list[int]]
"""Sequences of each microbatch, by number."""
Cutting = Callable[[Sequence[int], int], Runs]


def sorted_runs(lengths: Sequence[int], count: int) -> Runs:
    """So many microbatches of sequences of similar lengths, the longest first.

    >>> sorted_runs([1, 5, 2, 4], 2)
    [[1], [3, 2, 0]]
    """
    order = sorted(range(len(lengths)), key=lambda number: (-lengths[number], number))
    return _even_runs(order, lengths, count)


def runs_as_given(lengths: Sequence[int], count: int) -> Runs:
    """So many microbatches of sequences in the order in which they come.

    >>> runs_as_given([1, 5, 2, 4], 2)
    [[0, 1], [2, 3]]
    """
    return _even_runs([*range(len(lengths))], lengths, count)


def fewest_microbatches(lengths: Sequence[int], room: int) -> int:
    """Fewest microbatches of at most `room` tokens that could hold all sequences."""
    return max(1, -(-sum(lengths) // room))


def _even_runs(order: Sequence[int], lengths: Sequence[int], count: int) -> Runs:
    """Runs of an order whose largest number of tokens is the smallest there is: by halving what it
    may be, for filling up run after run needs the fewest runs."""
    if not 1 <= count <= len(order):
        raise ShapeError(
            f"{len(order)} sequences cannot make {count} microbatches",
            hint="give at least one microbatch, and no more than there are sequences",
        )
    tokens = [lengths[number] for number in order]
    low, high = max(tokens), sum(tokens)
    while low < high:
        middle = (low + high) // 2
        if len(_filled(order, lengths, middle)) <= count:
            high = middle
        else:
            low = middle + 1
    return _divided(_filled(order, lengths, low), lengths, count)


def _filled(order: Sequence[int], lengths: Sequence[int], most: int) -> Runs:
    runs: Runs = []
    left = 0
    for number in order:
        if lengths[number] > left:
            runs.append([])
            left = most
        runs[-1].append(number)
        left -= lengths[number]
    return runs


def _divided(runs: Runs, lengths: Sequence[int], count: int) -> Runs:
    """The same with runs cut in two until there are enough: those with most tokens first."""
    while len(runs) < count:
        several = [at for at, run in enumerate(runs) if len(run) > 1]
        at = max(several, key=lambda at: sum(lengths[number] for number in runs[at]))
        runs[at : at + 1] = _even_runs(runs[at], lengths, 2)
    return runs
